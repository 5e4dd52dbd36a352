"""The log of one partition: batches as they were received, found by offset and by time."""

from __future__ import annotations

from kohort.broker.log._compaction import AbortedTransaction
from kohort.broker.log._incoming import accepted_batch, single_batch
from kohort.broker.log._log import (
    AppendError,
    AppendResult,
    Marker,
    PartitionLog,
    TimestampedOffset,
)
from kohort.broker.log._segment import Segment

__all__ = [
    "AbortedTransaction",
    "AppendError",
    "AppendResult",
    "Marker",
    "PartitionLog",
    "Segment",
    "TimestampedOffset",
    "accepted_batch",
    "single_batch",
]
