"""Reading a range of a topic: without a group, without commits, and with exact bounds.

Theory of operation. ``find_bounds()`` makes offsets of both ends of each partition, once, before
the first record. ``read_bounds()`` reads them with a consumer that has no group: each partition is
assigned, sought and fetched up to its end. What a batch has after the end is cut off.

Invariants:

1. A record is returned if and only if its offset is within the bounds of its partition. Nothing
   that is produced later is returned.
2. Offsets that the log no longer has are an error, never a gap: the consumer has no reset policy.
3. A read ends. It raises KafkaTimeoutError if no partition advances for ``timeout_ms``.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.reading._async import read_async, read_batches_async
from kohort.reading._bounds import Bounds, Place, moment_ms
from kohort.reading._progress import ReadProgress
from kohort.reading._sync import (
    READER_OPTIONS,
    TIMEOUT_MS,
    find_bounds,
    read,
    read_batches,
    read_bounds,
)

__all__ = [
    "READER_OPTIONS",
    "TIMEOUT_MS",
    "Bounds",
    "Place",
    "ReadProgress",
    "find_bounds",
    "moment_ms",
    "read",
    "read_async",
    "read_batches",
    "read_batches_async",
    "read_bounds",
]
