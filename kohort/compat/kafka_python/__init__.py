"""kafka-python's consumer on top of kohort: change the import, and keep the program.

``from kohort.compat.kafka_python import KafkaConsumer, TopicPartition`` takes the place of
``from kafka import KafkaConsumer, TopicPartition``. Where kafka-python is installed, value classes
and errors are its own, so that its producer takes them and ``except kafka.errors.X`` catches them.
Other names of ``kafka``, such as ``KafkaProducer``, are passed on from it.

A framework that builds ``kafka.KafkaConsumer`` itself gets this class after :func:`install`.
"""

from __future__ import annotations

from typing import Any

from kohort.compat._peer import passed_on, put_everywhere
from kohort.compat.kafka_python import errors, structs
from kohort.compat.kafka_python._consumer import KafkaConsumer
from kohort.compat.kafka_python._listener import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
)
from kohort.compat.kafka_python._options import PEER_CONSUMER
from kohort.compat.kafka_python._values import ConsumerRecord, Deserializer, Serializer
from kohort.compat.kafka_python.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Deserializer",
    "KafkaConsumer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Serializer",
    "TopicPartition",
    "errors",
    "install",
    "structs",
    "uninstall",
]

_MODULES = ("kafka", "kafka.consumer", "kafka.consumer.group")


def install() -> None:
    """Put this consumer in the place of ``kafka.KafkaConsumer``.

    Call it before the framework is imported. Raises ImportError without kafka-python.
    """
    put_everywhere(_MODULES, "KafkaConsumer", KafkaConsumer)


def uninstall() -> None:
    """Put kafka-python's own consumer back."""
    if PEER_CONSUMER is not None:
        put_everywhere(_MODULES, "KafkaConsumer", PEER_CONSUMER)


def __getattr__(name: str) -> Any:
    """Return a name of ``kafka`` that is not replaced here."""
    return passed_on(__name__, "kafka", "kafka-python", name)
