"""Translation of kohort's errors into those that a program for kafka-python catches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from kohort.compat._peer import peer_name
from kohort.compat.kafka_python import errors
from kohort.compat.kafka_python.structs import OffsetAndMetadata, TopicPartition
from kohort.errors import (
    BrokerResponseError,
    CommitFailedError,
    ConfigurationError,
    ConsumerClosedError,
    CorruptBatchError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoBrokersAvailable,
    NoOffsetForPartitionError,
    ProtocolError,
    RebalanceListenerError,
    RecordDeserializationError,
    RecordTooLargeError,
    SecurityError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    TransportError,
    UnsupportedCodecError,
)

P = ParamSpec("P")
T = TypeVar("T")

CLOSED = "KafkaConsumer is closed"
LISTENER_RAISED = "User rebalance callback throws an error"


def _text(error: Any) -> tuple[object, ...]:
    return (str(error),)


def _at_offset(error: Any) -> tuple[object, ...]:
    return ({TopicPartition(*error.topic_partition): error.offset},)


def _partition(error: Any) -> tuple[object, ...]:
    return ({TopicPartition(*error.topic_partition)},)


def _truncation(error: Any) -> tuple[object, ...]:
    diverging = None
    if error.diverging_offset is not None:
        diverging = OffsetAndMetadata(error.diverging_offset, "", error.diverging_epoch)
    return ({TopicPartition(*error.topic_partition): diverging},)


TABLE: list[tuple[type[KafkaError], str, Callable[[Any], tuple[object, ...]]]] = [
    (ConsumerClosedError, "IllegalStateError", lambda _: (CLOSED,)),
    (IllegalStateError, "IllegalStateError", _text),
    (ConfigurationError, "KafkaConfigurationError", _text),
    (NoBrokersAvailable, "KafkaConnectionError", _text),
    (KafkaTimeoutError, "KafkaTimeoutError", _text),
    (NoOffsetForPartitionError, "NoOffsetForPartitionError", _partition),
    (LogTruncationError, "LogTruncationError", _truncation),
    (TopicRecreatedError, "OffsetOutOfRangeError", _at_offset),
    (UnsupportedCodecError, "UnsupportedCodecError", _text),
    (CorruptBatchError, "CorruptRecordError", _text),
    (CommitFailedError, "CommitFailedError", lambda _: ()),
    (RebalanceListenerError, "KafkaError", lambda _: (LISTENER_RAISED,)),
    (TopicAuthorizationFailedError, "TopicAuthorizationFailedError", lambda e: (set(e.topics),)),
    (GroupAuthorizationFailedError, "GroupAuthorizationFailedError", lambda e: (e.group_id,)),
    (ProtocolError, "KafkaError", _text),
    (TransportError, "KafkaConnectionError", _text),
    (SecurityError, "SaslAuthenticationFailedError", _text),
]
"""Class in kohort, its name in ``kafka.errors``, its arguments there; the first match counts."""


def translated(error: KafkaError) -> Exception:
    """Return the error of kafka-python that stands for one of kohort's.

    Without kafka-python it is the same error.
    """
    if isinstance(error, RecordDeserializationError) and isinstance(error.__cause__, Exception):
        return error.__cause__  # a deserializer's own error, as kafka-python raises it
    if not errors.HAS_PEER:
        return error
    found = _translated(error)
    found.__cause__ = error.__cause__ if isinstance(error, RebalanceListenerError) else error
    return found


def _translated(error: KafkaError) -> Exception:
    found: Exception
    if isinstance(error, RecordTooLargeError) and error.topic_partition is not None:
        peer = peer_name("kafka.consumer.fetcher", "RecordTooLargeError") or errors.KafkaError
        found = peer(str(error), *_at_offset(error))
        return found
    if isinstance(error, BrokerResponseError) and getattr(error, "topic_partition", None):
        found = errors.for_code(error.code)(*_at_offset(error))
        return found
    for kind, name, arguments in TABLE:
        if isinstance(error, kind):
            found = getattr(errors, name, errors.KafkaError)(*arguments(error))
            return found
    if isinstance(error, BrokerResponseError):
        found = errors.for_code(error.code)(str(error))
    else:
        found = errors.KafkaError(str(error))
    return found


def raise_translated(error: KafkaError) -> NoReturn:
    """Raise what kafka-python raises in place of the error."""
    found = translated(error)
    raise found from found.__cause__


def translating(method: Callable[P, T]) -> Callable[P, T]:
    """Return the method with its errors translated."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except KafkaError as error:
            raise_translated(error)

    return call
