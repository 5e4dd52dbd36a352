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
from kohort.compat.confluent._consumer import Consumer
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
    "Consumer",
    "HasGroupMetadata",
    "KafkaError",
    "KafkaException",
    "Message",
    "ThrottleEvent",
    "TopicPartition",
    "group_metadata",
    "install",
    "offsets",
    "uninstall",
]

_MODULES = ("confluent_kafka", "confluent_kafka.cimpl")
_PEER_CONSUMER = peer_name("confluent_kafka.cimpl", "Consumer")


def install() -> None:
    """Put this consumer in the place of ``confluent_kafka.Consumer``.

    Call it before the framework is imported. Raises ImportError without confluent-kafka.
    """
    put_everywhere(_MODULES, "Consumer", Consumer)


def uninstall() -> None:
    """Put confluent-kafka's own consumer back."""
    if _PEER_CONSUMER is not None:
        put_everywhere(_MODULES, "Consumer", _PEER_CONSUMER)


def __getattr__(name: str) -> Any:
    """Return a name of ``confluent_kafka`` that is not replaced here."""
    return passed_on(__name__, "confluent_kafka", "confluent-kafka", name)
