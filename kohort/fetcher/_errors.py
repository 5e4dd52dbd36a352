"""What an error code in the answer about one partition means for that partition."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from kohort.errors import (
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    broker_error,
)
from kohort.types import TopicPartition


class FailureAction(Enum):
    """What happens after a failure."""

    RETRY = "retry"
    """It passes by itself: tried again after a pause, and nobody is told."""
    RAISE = "raise"
    """Tried again after a pause as well, but the caller is told each time."""
    DENY = "refuse"
    """A right is missing. Tried again after longer pauses, and reported once for each change."""
    RAISE_UNTIL_SEEK = "stand"
    """Only the caller can go on from here: raised until the partition is sought elsewhere."""


class Failure(NamedTuple):
    """What went wrong with one partition."""

    error: KafkaError
    action: FailureAction
    needs_refresh: bool = False
    """The metadata is stale."""


class EpochEnd(NamedTuple):
    """The largest epoch not over the one asked for, and the offset behind its last record."""

    epoch: int
    offset: int


def fetch_failure(code: int, tp: TopicPartition, offset: int) -> Failure:
    """For an error code in a fetch response."""
    where = f"fetching {tp.topic}-{tp.partition} at offset {offset}"
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Failure(
            OffsetOutOfRangeError(
                f"{where}: the log does not reach there, before its start or behind its end. "
                f'auto_offset_reset "earliest" or "latest" would go on by itself; '
                f"seek() or seek_to_beginning() does now"
            ),
            FailureAction.RAISE_UNTIL_SEEK,
        )
    if code == ErrorCode.CORRUPT_MESSAGE:
        # The broker's own log is broken; another replica may become leader and have it whole.
        error = CorruptBatchError(
            f"{where}: the broker finds the batch in its log corrupt. It is asked again; "
            f"seek({tp}, ...) to a later offset passes over it",
            topic_partition=tp,
            offset=offset,
        )
        return Failure(error, FailureAction.RAISE)
    return _by_class(code, where, tp, "READ")


def lookup_failure(code: int, tp: TopicPartition) -> Failure:
    """For an error code in an answer to ListOffsets."""
    where = f"looking up an offset of {tp.topic}-{tp.partition}"
    return _by_class(code, where, tp, "DESCRIBE")


def validation_failure(code: int, tp: TopicPartition) -> Failure:
    """For an error code in an answer to OffsetForLeaderEpoch."""
    where = f"validating the position of {tp.topic}-{tp.partition}"
    return _by_class(code, where, tp, "DESCRIBE")


def truncation(tp: TopicPartition, offset: int, end: EpochEnd) -> LogTruncationError:
    """The error for a log that ends, or goes another way, before the offset."""
    diverging = min(end.offset, offset)
    return LogTruncationError(
        f"{tp.topic}-{tp.partition}: the log was cut off at offset {diverging} (leader epoch "
        f"{end.epoch}) or before, and it was read up to offset {offset} already: a broker became "
        f"leader that lacked the rest (unclean election). Nothing is reset and the other "
        f"partitions go on; seek({tp}, {diverging}) reads what is there now",
        topic_partition=tp,
        offset=offset,
        diverging_offset=diverging,
        diverging_epoch=end.epoch,
    )


def denied_topics_error(
    where: str, topics: Collection[str], operation: str, *, may_create: bool = False
) -> KafkaError:
    """Return the error for topics on which the principal lacks a right.

    ``may_create``: the request would create missing topics, which needs a right, too.
    """
    names = ", ".join(repr(topic) for topic in sorted(topics))
    names += " (CREATE if it does not exist)" if may_create else ""
    return TopicAuthorizationFailedError(
        f"{where}: this client needs {operation} on topic {names}. Grant it; the client "
        "retries, and other topics go on",
        topics=topics,
        operation=operation,
    )


def _by_class(code: int, where: str, tp: TopicPartition, operation: str) -> Failure:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Failure(denied_topics_error(where, {tp.topic}, operation), FailureAction.DENY)
    error = broker_error(code)
    error = broker_error(code, f"{where}: {error}")
    action = FailureAction.RETRY if error.retriable else FailureAction.RAISE
    return Failure(error, action, error.refresh_metadata)
