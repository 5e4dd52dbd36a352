"""kafka-python's consumer on top of kohort: change the import, and keep the program.

``from kohort.compat.kafka_python import KafkaConsumer, TopicPartition`` takes the place of
``from kafka import KafkaConsumer, TopicPartition``. Where kafka-python is installed, value classes
and errors are its own, so that its producer takes them and ``except kafka.errors.X`` catches them.
Other names of ``kafka``, such as ``KafkaProducer``, are passed on from it.

A framework that builds ``kafka.KafkaConsumer`` itself gets this class after :func:`install`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
    for module in _MODULES:
        setattr(import_module(module), "KafkaConsumer", KafkaConsumer)  # noqa: B010


def uninstall() -> None:
    """Put kafka-python's own consumer back."""
    if PEER_CONSUMER is not None:
        for module in _MODULES:
            setattr(import_module(module), "KafkaConsumer", PEER_CONSUMER)  # noqa: B010


def __getattr__(name: str) -> Any:
    """Return a name of ``kafka`` that is not replaced here."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("kafka"), name)
    except ImportError:
        raise AttributeError(f"{name} is kafka-python's own. Install kafka-python") from None
