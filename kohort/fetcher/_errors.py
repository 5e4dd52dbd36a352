"""The meaning of an error code in the response for one partition."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from kohort.errors import (
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    broker_error,
)
from kohort.types import NamedTuple, TopicPartition


class FailureAction(Enum):
    """The reaction to a failure."""

    RETRY = "retry"
    """The error is transient. The request is retried after a back-off and no error is raised."""
    RAISE = "raise"
    """The request is retried after a back-off, and the error is raised each time."""
    DENY = "refuse"
    """A right is missing. Retries have longer back-offs, and each change is reported once."""
    RAISE_UNTIL_SEEK = "stand"
    """The error is raised until the caller seeks the partition to another offset."""


class Failure(NamedTuple):
    """The failure of a request for one partition."""

    error: KafkaError
    action: FailureAction
    needs_refresh: bool = False
    """True if the metadata is stale."""


class EpochEnd(NamedTuple):
    """The largest epoch up to the requested one, and the offset after its last record."""

    epoch: int
    offset: int


def fetch_failure(code: int, tp: TopicPartition, offset: int) -> Failure:
    """Return the failure for an error code in a Fetch response."""
    where = f"fetching {tp.topic}-{tp.partition} at offset {offset}"
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        out_of_range = OffsetOutOfRangeError(
            f"{where} failed: the offset is before the start or after the end of the log. "
            f"Call seek() or seek_to_beginning(), or set auto_offset_reset to "
            f'"earliest" or "latest"'
        )
        out_of_range.topic_partition, out_of_range.offset = tp, offset
        return Failure(out_of_range, FailureAction.RAISE_UNTIL_SEEK)
    if code == ErrorCode.CORRUPT_MESSAGE:
        # The broker's log is corrupt. Another replica may become leader with an intact log.
        error = CorruptBatchError(
            f"{where} failed: the batch in the broker's log is corrupt. The fetch is retried. "
            f"To skip the batch, call seek({tp}, ...) with a later offset",
            topic_partition=tp,
            offset=offset,
        )
        return Failure(error, FailureAction.RAISE)
    return _by_class(code, where, tp, "READ")


def lookup_failure(code: int, tp: TopicPartition) -> Failure:
    """Return the failure for an error code in a ListOffsets response."""
    where = f"looking up an offset of {tp.topic}-{tp.partition}"
    return _by_class(code, where, tp, "DESCRIBE")


def validation_failure(code: int, tp: TopicPartition) -> Failure:
    """Return the failure for an error code in an OffsetForLeaderEpoch response."""
    where = f"validating the position of {tp.topic}-{tp.partition}"
    return _by_class(code, where, tp, "DESCRIBE")


def truncation(tp: TopicPartition, offset: int, end: EpochEnd) -> LogTruncationError:
    """Return the error for a log that ends or diverges before the offset."""
    diverging = min(end.offset, offset)
    return LogTruncationError(
        f"{tp.topic}-{tp.partition}: the log was truncated to offset {diverging} (leader epoch "
        f"{end.epoch}) or before, and the consumer has read up to offset {offset}. After an "
        f"unclean election, the new leader lacks these records. The position is not reset, and "
        f"other partitions continue. Call seek({tp}, {diverging}) to read the new records",
        topic_partition=tp,
        offset=offset,
        diverging_offset=diverging,
        diverging_epoch=end.epoch,
    )


def denied_topics_error(
    where: str,
    topics: Collection[str],
    operation: str,
    *,
    may_create: bool = False,
    advice: str = "The client retries, and other topics continue",
) -> KafkaError:
    """Return the error for topics on which the principal lacks a right. Without any, it names none.

    ``may_create``: the request would create missing topics, which needs another right.
    """
    names = "topic " + ", ".join(repr(topic) for topic in sorted(topics))
    if not topics:
        names = "a topic without a known name"
    names += " (CREATE if it does not exist)" if may_create else ""
    return TopicAuthorizationFailedError(
        f"{where}: this client needs {operation} on {names}. Grant it",
        topics=topics,
        operation=operation,
        advice=advice,
    )


def _by_class(code: int, where: str, tp: TopicPartition, operation: str) -> Failure:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Failure(denied_topics_error(where, {tp.topic}, operation), FailureAction.DENY)
    error = broker_error(code)
    error = broker_error(code, f"{where}: {error}")
    action = FailureAction.RETRY if error.retriable else FailureAction.RAISE
    return Failure(error, action, error.refresh_metadata)
