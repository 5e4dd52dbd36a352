"""Translation of kohort's errors into those that a program for aiokafka catches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from kohort.compat.aiokafka import errors
from kohort.compat.aiokafka.structs import TopicPartition
from kohort.errors import (
    BrokerResponseError,
    CommitFailedError,
    ConfigurationError,
    ConsumerClosedError,
    CorruptBatchError,
    CredentialsUnavailableError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoBrokersAvailable,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordDeserializationError,
    RecordTooLargeError,
    SecurityError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
    TransportError,
    UnsupportedCodecError,
)

Arguments = Callable[[Any], tuple[object, ...]]


def _text(error: Any) -> tuple[object, ...]:
    return (str(error),)


def _partition(error: Any) -> TopicPartition | None:
    found = getattr(error, "topic_partition", None)
    return None if found is None else TopicPartition(*found)


def _at_offset(error: Any) -> tuple[object, ...]:
    tp = _partition(error)
    return _text(error) if tp is None else ({tp: error.offset},)


def _topic(error: Any) -> tuple[object, ...]:
    topics = sorted(error.topics)
    return (topics[0],) if topics else _text(error)


TABLE: list[tuple[type[KafkaError], str, Arguments]] = [
    (ConsumerClosedError, "ConsumerStoppedError", lambda _: ()),
    (IllegalStateError, "IllegalStateError", _text),
    (OffsetOutOfRangeError, "OffsetOutOfRangeError", _at_offset),
    (LogTruncationError, "OffsetOutOfRangeError", _at_offset),
    (TopicRecreatedError, "OffsetOutOfRangeError", _at_offset),
    (NoOffsetForPartitionError, "NoOffsetForPartitionError", lambda error: (_partition(error),)),
    (UnsupportedCodecError, "UnsupportedCodecError", _text),
    (CorruptBatchError, "CorruptRecordException", _text),
    (CommitFailedError, "CommitFailedError", lambda _: ()),
    (TopicAuthorizationFailedError, "TopicAuthorizationFailedError", _topic),
    (GroupAuthorizationFailedError, "GroupAuthorizationFailedError", lambda e: (e.group_id,)),
    (NoBrokersAvailable, "NoBrokersAvailable", _text),
    (CredentialsUnavailableError, "AuthenticationFailedError", _text),
    (KafkaTimeoutError, "KafkaTimeoutError", _text),
    (ProtocolError, "KafkaError", _text),
    (TransportError, "KafkaConnectionError", _text),
    (SecurityError, "AuthenticationFailedError", _text),
]
"""Class in kohort, its name in ``aiokafka.errors``, its arguments there. The first match counts."""


class ErrorTranslator:
    """The errors of aiokafka that stand for those of one consumer."""

    def __init__(self, bootstrap_servers: object, max_partition_fetch_bytes: int) -> None:
        self._servers = bootstrap_servers
        self._max_bytes = max_partition_fetch_bytes

    def translated(self, error: KafkaError, *, starting: bool = False) -> Exception:
        """Return the error of aiokafka for an error of kohort.

        Without aiokafka it is the same error, with the arguments that aiokafka's has.
        """
        if isinstance(error, RecordDeserializationError) and isinstance(error.__cause__, Exception):
            return error.__cause__  # a deserializer's own error, as aiokafka raises it
        if starting and isinstance(error, (NoBrokersAvailable, SecurityError, TransportError)):
            text = f"Unable to bootstrap from {self._servers}: {error}"
            return self._made(error, "KafkaConnectionError", (text,))
        if isinstance(error, RecordTooLargeError) and error.topic_partition is not None:
            arguments = (str(error), _partition(error), error.offset, self._max_bytes)
            return self._made(error, "RecordTooLargeError", arguments)
        if isinstance(error, ConfigurationError):
            return ValueError(str(error)) if errors.HAS_PEER else error
        for kind, name, arguments_of in TABLE:
            if isinstance(error, kind):
                return self._made(error, name, arguments_of(error))
        if isinstance(error, BrokerResponseError) and errors.HAS_PEER:
            found: Exception = errors.for_code(error.code)(str(error))
            return found
        return self._made(error, "KafkaError", _text(error))

    def _made(self, error: KafkaError, name: str, arguments: tuple[object, ...]) -> Exception:
        kind: type[Exception] = getattr(errors, name)
        if errors.HAS_PEER:
            return kind(*arguments)
        found = error if isinstance(error, kind) else kind(str(error))
        found.args = arguments or found.args
        return found

    def raise_translated(self, error: KafkaError, *, starting: bool = False) -> NoReturn:
        """Raise aiokafka's error for an error of kohort, which is its cause."""
        found = self.translated(error, starting=starting)
        if found is error or found is error.__cause__:
            raise found from found.__cause__
        raise found from error

    @contextmanager
    def translating(self, *, starting: bool = False) -> Iterator[None]:
        """Raise aiokafka's errors for those of kohort in the block."""
        try:
            yield
        except KafkaError as error:
            self.raise_translated(error, starting=starting)
