"""aiokafka's consumer on top of kohort: change the import, and keep the program.

``from kohort.compat.aiokafka import AIOKafkaConsumer, TopicPartition`` takes the place of
``from aiokafka import AIOKafkaConsumer, TopicPartition``. Where aiokafka is installed, value
classes and errors are its own. Then its producer takes them, and ``except aiokafka.errors.X``
catches them. Other names of ``aiokafka``, such as ``AIOKafkaProducer``, are passed on from it.

A framework that makes ``aiokafka.AIOKafkaConsumer`` itself gets this class after :func:`install`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kohort.compat.aiokafka import abc, errors, structs
from kohort.compat.aiokafka._consumer import AIOKafkaConsumer
from kohort.compat.aiokafka._peer import PEER_CONSUMER
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
    for module in _MODULES:
        setattr(import_module(module), "AIOKafkaConsumer", AIOKafkaConsumer)  # noqa: B010


def uninstall() -> None:
    """Put aiokafka's own consumer back."""
    if PEER_CONSUMER is not None:
        for module in _MODULES:
            setattr(import_module(module), "AIOKafkaConsumer", PEER_CONSUMER)  # noqa: B010


def __getattr__(name: str) -> Any:
    """Return a name of ``aiokafka`` that is not replaced here."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("aiokafka"), name)
    except ImportError:
        raise AttributeError(f"{name} is aiokafka's own. Install aiokafka") from None
