"""``kohort.read()``: the records of a range as one table, and as tables one after another."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, Unpack

from kohort.admin import KafkaAdminClient
from kohort.consumer import KafkaConsumer
from kohort.errors import KafkaTimeoutError
from kohort.reading._bounds import Bounds, Place, find_bounds
from kohort.records import RecordColumns, RecordTable
from kohort.types import LazyModule, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort import _options
else:
    _options = LazyModule("kohort._options")

POLL_MS = 50
"""Longest wait for records. The end of a range may have none, so it is short."""
TIMEOUT_MS = 60_000
READER_OPTIONS: Mapping[str, Any] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
}


class ReadProgress(NamedTuple):
    """State of a read."""

    records: int
    """Records that were returned."""
    offsets: int
    """Offsets that were passed. Compaction and transactions leave offsets without a record."""
    total: int
    """Offsets of the range."""


ReadProgress.__module__ = "kohort"  # pickles and tracebacks have the public name


def read(
    topic: str,
    *,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    progress: Callable[[ReadProgress], object] | None = None,
    timeout_ms: float = TIMEOUT_MS,
    **options: Unpack[_options.AdminOptions],
) -> RecordTable:
    """Return the records of a topic from one place to another as a table.

    ``kohort.read("orders", since="-1h", bootstrap_servers="localhost:9092")``

    ``since`` and ``until`` have the forms of a reset, except for a shift: ``"earliest"``,
    ``"latest"``, an offset, or ``{partition: offset}``. They may be a time ago such as ``"-2h"`` or
    a ``timedelta``, or a time with a zone as a ``datetime`` or in ISO format. A time stands for the
    first record at or after it in each partition. The range ends before ``until``, and nothing that
    is produced after the call is in it.

    ``progress`` is called after each poll. The whole range is in memory: :func:`read_batches` has
    one part at a time. No group is joined and nothing is committed. ``options`` are those of an
    admin client.

    Raises UnknownTopicOrPartitionError, ValueError for a place, OffsetOutOfRangeError if retention
    deletes records before they are read, and KafkaTimeoutError if no record arrives for
    ``timeout_ms``.
    """
    parts = read_batches(
        topic,
        since=since,
        until=until,
        partitions=partitions,
        isolation_level=isolation_level,
        progress=progress,
        timeout_ms=timeout_ms,
        **options,
    )
    return RecordTable(columns for part in parts for columns in part.batches)


def read_batches(
    topic: str,
    *,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    progress: Callable[[ReadProgress], object] | None = None,
    timeout_ms: float = TIMEOUT_MS,
    **options: Unpack[_options.AdminOptions],
) -> Iterator[RecordTable]:
    """Yield the records of :func:`read` as they arrive, in tables of about 4 MiB.

    Arguments and errors are those of :func:`read`. Records of one partition are in their order.
    """
    is_committed = isolation_level == "read_committed"
    more: dict[str, Any] = {**READER_OPTIONS, "isolation_level": isolation_level, **options}
    with KafkaConsumer(**more) as consumer:
        with KafkaAdminClient(**options) as admin:
            bounds = find_bounds(
                admin,
                topic,
                since,
                until,
                partitions,
                committed=is_committed,
                timeout_ms=timeout_ms,
            )
        with closing(read_bounds(consumer, bounds, progress, timeout_ms)) as parts:
            yield from parts


def read_bounds(
    consumer: KafkaConsumer[Any, Any],
    bounds: Mapping[TopicPartition, Bounds],
    progress: Callable[[ReadProgress], object] | None = None,
    timeout_ms: float = TIMEOUT_MS,
) -> Generator[RecordTable, None, None]:
    """Yield the records within the bounds, with a consumer that has the options of a reader."""
    left = {tp: each for tp, each in bounds.items() if each.start < each.end}
    total = _offsets_of(bounds)
    positions = {tp: each.start for tp, each in left.items()}
    consumer.assign(sorted(left))
    for tp, each in left.items():
        consumer.seek(tp, each.start, until=each.end)
    records = 0
    advanced_at = time.monotonic()
    while left:
        polled = consumer.poll_batches(timeout_ms=POLL_MS)
        before, positions = positions, positions | consumer.positions()
        part = RecordTable(_within(polled, bounds))
        left = {tp: each for tp, each in left.items() if positions[tp] < each.end}
        if positions != before:
            advanced_at = time.monotonic()
            records += len(part)
            if progress is not None:
                unread = {tp: each._replace(start=positions[tp]) for tp, each in left.items()}
                progress(ReadProgress(records, total - _offsets_of(unread), total))
        elif time.monotonic() - advanced_at > timeout_ms / 1000:
            raise _stalled(consumer, left, positions, timeout_ms)
        if len(part):
            yield part
            advanced_at = time.monotonic()  # the caller's time does not count


def _offsets_of(bounds: Mapping[TopicPartition, Bounds]) -> int:
    return sum(each.end - each.start for each in bounds.values())


def _within(
    polled: Iterable[RecordColumns], bounds: Mapping[TopicPartition, Bounds]
) -> Iterator[RecordColumns]:
    """Yield the rows before the end of each partition."""
    for columns in polled:
        end = bounds[TopicPartition(columns.topic, columns.partition)].end
        rows = bisect_left(columns.offset, end)
        if rows:
            yield columns if rows == len(columns) else columns[:rows]


def _stalled(
    consumer: KafkaConsumer[Any, Any],
    left: Mapping[TopicPartition, Bounds],
    positions: Mapping[TopicPartition, int],
    timeout_ms: float,
) -> KafkaTimeoutError:
    tp, bounds = min(left.items())
    reasons = "; ".join(consumer.explain().reasons)
    return KafkaTimeoutError(
        f"the read of {tp.topic}-{tp.partition} stopped at offset {positions[tp]} of {bounds.end}: "
        f"no records for {timeout_ms / 1000:g} s. {reasons}"
    )
