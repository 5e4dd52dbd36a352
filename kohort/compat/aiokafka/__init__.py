"""aiokafka's consumer on top of kohort: change the import, and keep the program.

``from kohort.compat.aiokafka import AIOKafkaConsumer, TopicPartition`` takes the place of
``from aiokafka import AIOKafkaConsumer, TopicPartition``. Where aiokafka is installed, value
classes and errors are its own. Then its producer takes them, and ``except aiokafka.errors.X``
catches them. Other names of ``aiokafka``, such as ``AIOKafkaProducer``, are passed on from it.

A framework that makes ``aiokafka.AIOKafkaConsumer`` itself gets this class after :func:`install`.
"""

from __future__ import annotations

from typing import Any

from kohort.compat._peer import passed_on, put_everywhere
from kohort.compat.aiokafka import abc, errors, structs
from kohort.compat.aiokafka._consumer import AIOKafkaConsumer
from kohort.compat.aiokafka._options import PEER_CONSUMER
from kohort.compat.aiokafka.abc import ConsumerRebalanceListener
from kohort.compat.aiokafka.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__all__ = [
    "AIOKafkaConsumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "abc",
    "errors",
    "install",
    "structs",
    "uninstall",
]

ConsumerStoppedError: type[Exception] = errors.ConsumerStoppedError
IllegalOperation: type[Exception] = errors.IllegalOperation

_MODULES = ("aiokafka", "aiokafka.consumer", "aiokafka.consumer.consumer")


def install() -> None:
    """Put this consumer in the place of ``aiokafka.AIOKafkaConsumer``.

    Call it before the framework is imported. Raises ImportError without aiokafka.
    """
    put_everywhere(_MODULES, "AIOKafkaConsumer", AIOKafkaConsumer)


def uninstall() -> None:
    """Put aiokafka's own consumer back."""
    if PEER_CONSUMER is not None:
        put_everywhere(_MODULES, "AIOKafkaConsumer", PEER_CONSUMER)


def __getattr__(name: str) -> Any:
    """Return a name of ``aiokafka`` that is not replaced here."""
    return passed_on(__name__, "aiokafka", "aiokafka", name)
