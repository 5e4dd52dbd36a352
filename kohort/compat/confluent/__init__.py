"""confluent-kafka's consumer on top of kohort: change the import, and keep the program.

``from kohort.compat.confluent import Consumer, TopicPartition`` takes the place of ``from
confluent_kafka import Consumer, TopicPartition``. Where confluent-kafka is installed, partitions,
errors and exceptions are its own, so that its producer takes them and ``except
confluent_kafka.KafkaException`` catches them. Other names of ``confluent_kafka``, such as
``Producer``, are passed on from it.

A framework that builds ``confluent_kafka.Consumer`` itself gets this class after :func:`install`.

:func:`offsets` and :func:`group_metadata` give its transactional producer what it needs of any
consumer of kohort.
"""

from __future__ import annotations

from typing import Any

from kohort.compat._peer import passed_on, peer_name, put_everywhere
from kohort.compat.confluent import aio
from kohort.compat.confluent._consumer import Consumer
from kohort.compat.confluent._deserializing import (
    ConsumeError,
    DeserializingConsumer,
    KeyDeserializationError,
    SerializationError,
    ValueDeserializationError,
)
from kohort.compat.confluent._share import (
    AcknowledgeType,
    ConcurrentModificationException,
    DeserializingShareConsumer,
    IllegalStateException,
    Messages,
    ShareConsumer,
)
from kohort.compat.confluent._transactions import HasGroupMetadata, group_metadata, offsets
from kohort.compat.confluent._values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
    ThrottleEvent,
    TopicPartition,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "ConcurrentModificationException",
    "ConsumeError",
    "Consumer",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "HasGroupMetadata",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "Message",
    "Messages",
    "SerializationError",
    "ShareConsumer",
    "ThrottleEvent",
    "TopicPartition",
    "ValueDeserializationError",
    "aio",
    "group_metadata",
    "install",
    "offsets",
    "uninstall",
]

_ROOTS = ("confluent_kafka", "confluent_kafka.cimpl")
_DESERIALIZING = ("confluent_kafka", "confluent_kafka.deserializing_consumer")
_AIO = "confluent_kafka.aio"
_PLACES: tuple[tuple[tuple[str, ...], str, Any], ...] = (
    (_ROOTS, "Consumer", Consumer),
    (_DESERIALIZING, "DeserializingConsumer", DeserializingConsumer),
    (_ROOTS, "ShareConsumer", ShareConsumer),
    (
        ("confluent_kafka", "confluent_kafka.deserializing_share_consumer"),
        "DeserializingShareConsumer",
        DeserializingShareConsumer,
    ),
    ((_AIO, f"{_AIO}._AIOConsumer"), "AIOConsumer", aio.AIOConsumer),
    ((_AIO,), "AsyncDeserializingConsumer", aio.AsyncDeserializingConsumer),
)
_PEERS = {name: peer_name(modules[-1], name) for modules, name, _ in _PLACES}


def install() -> None:
    """Put these consumers in the place of ``confluent_kafka.Consumer`` and the others.

    Call it before the framework is imported. Raises ImportError without confluent-kafka.
    """
    for modules, name, ours in _PLACES:
        if _PEERS[name] is not None or name == "Consumer":
            put_everywhere(modules, name, ours)


def uninstall() -> None:
    """Put confluent-kafka's own consumers back."""
    for modules, name, _ in _PLACES:
        if _PEERS[name] is not None:
            put_everywhere(modules, name, _PEERS[name])


def __getattr__(name: str) -> Any:
    """Return a name of ``confluent_kafka`` that is not replaced here."""
    return passed_on(__name__, "confluent_kafka", "confluent-kafka", name)
