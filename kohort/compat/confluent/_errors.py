"""Translation of kohort's errors into the codes that a program for confluent-kafka reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from kohort import TopicPartition as NativePartition
from kohort.compat.confluent._values import KafkaError, KafkaException, Message
from kohort.errors import (
    BrokerResponseError,
    CommitFailedError,
    ConfigurationError,
    ConsumerClosedError,
    CorruptBatchError,
    DecompressionBudgetError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaTimeoutError,
    LogTruncationError,
    NoBrokersAvailable,
    NoOffsetForPartitionError,
    NotAssignedError,
    OffsetOutOfRangeError,
    RebalanceListenerError,
    SecurityError,
    ThreadStartError,
    TlsError,
    TopicRecreatedError,
    TransportError,
    UnsupportedCodecError,
)
from kohort.errors import KafkaError as NativeError

P = ParamSpec("P")
T = TypeVar("T")

CLOSED: Final = "Consumer closed"
HANDLE_CLOSED: Final = "Handle has been closed"

_CODES: Final[list[tuple[type[NativeError], str]]] = [
    (NoBrokersAvailable, "_ALL_BROKERS_DOWN"),
    (KafkaTimeoutError, "_TIMED_OUT"),
    (ConfigurationError, "_INVALID_ARG"),
    (TlsError, "_SSL"),
    (SecurityError, "_AUTHENTICATION"),
    (NoOffsetForPartitionError, "_AUTO_OFFSET_RESET"),
    (OffsetOutOfRangeError, "_AUTO_OFFSET_RESET"),
    (LogTruncationError, "_LOG_TRUNCATION"),
    (TopicRecreatedError, "INCONSISTENT_TOPIC_ID"),
    (UnsupportedCodecError, "_NOT_IMPLEMENTED"),
    (DecompressionBudgetError, "_BAD_COMPRESSION"),
    (CorruptBatchError, "_BAD_MSG"),
    (NotAssignedError, "_STATE"),
    (IllegalStateError, "_STATE"),
    (ThreadStartError, "_CRIT_SYS_RESOURCE"),
    (TransportError, "_TRANSPORT"),
]
"""Class in kohort and the name of its code; the first match counts."""
_OF_CLIENT: Final = (TransportError, SecurityError)


def to_error(error: NativeError) -> KafkaError:
    """Return the KafkaError that stands for one of kohort's."""
    text = str(error)
    for kind, name in _CODES:
        if isinstance(error, kind):
            return KafkaError(getattr(KafkaError, name), text)
    if isinstance(error, CommitFailedError):
        cause = error.__cause__
        code = int(cause.code) if isinstance(cause, BrokerResponseError) else None
        return KafkaError(KafkaError.ILLEGAL_GENERATION if code is None else code, text)
    if isinstance(error, BrokerResponseError):
        fatal = isinstance(error, FencedInstanceIdError)
        return KafkaError(int(error.code), text, fatal=fatal, retriable=bool(error.retriable))
    return KafkaError(KafkaError._FAIL, text)


def is_of_client(error: NativeError) -> bool:
    """True if confluent-kafka gives the error to ``error_cb`` and not to the caller of poll()."""
    return isinstance(error, _OF_CLIENT)


def to_message(error: NativeError) -> Message:
    """Return the message that poll() returns in place of raising the error."""
    at: NativePartition | None = getattr(error, "topic_partition", None)
    offset = getattr(error, "offset", None)
    return error_message(to_error(error), at, -1 if offset is None else offset)


def error_message(
    error: KafkaError, at: NativePartition | None = None, offset: int = -1
) -> Message:
    """Return a message with an error, whose value is the text of the error."""
    topic, number = (None, -1) if at is None else at
    return Message(
        topic=topic,
        partition=number,
        offset=offset,
        value=error.str().encode(),
        error=error,
        timestamp=(0, -1),
        latency=-1.0,
        leader_epoch=-1,
    )


def translated(error: NativeError) -> BaseException:
    """Return what confluent-kafka raises in place of an error of kohort."""
    if isinstance(error, ConsumerClosedError):
        return RuntimeError(CLOSED)
    if isinstance(error, RebalanceListenerError) and error.__cause__ is not None:
        return error.__cause__  # the exception of the program's own callback
    return KafkaException(to_error(error))


def translating(method: Callable[P, T]) -> Callable[P, T]:
    """Return the method with its errors translated."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except NativeError as error:
            found = translated(error)
            cause = found.__cause__ if found is error.__cause__ else error
        raise found from cause

    return call
