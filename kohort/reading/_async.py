"""Reads of a range, with the async clients.

``python -m tools.sync_api`` writes ``_sync.py``, with the same functions without ``await``, from
this file.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Unpack

import anyio

from kohort.admin import AsyncKafkaAdminClient, OffsetSpec
from kohort.consumer import AsyncKafkaConsumer
from kohort.errors import UnknownTopicOrPartitionError
from kohort.reading._bounds import Bounds, Place
from kohort.reading._progress import ReadProgress, offsets_of, stalled, within
from kohort.records import RecordTable
from kohort.types import LazyModule, TopicPartition

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


async def read_async(
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

    ``await kohort.read_async("orders", since="-1h", bootstrap_servers="localhost:9092")``

    ``since`` and ``until`` have the forms of a reset, except for a shift: ``"earliest"``,
    ``"latest"``, an offset, or ``{partition: offset}``. They may be a time ago such as ``"-2h"`` or
    a ``timedelta``, or a time with a zone as a ``datetime`` or in ISO format. A time stands for the
    first record at or after it in each partition. The range ends before ``until``, and nothing that
    is produced after the call is in it.

    ``progress`` is called after each poll. The whole range is in memory: :func:`read_batches_async`
    has one part at a time. No group is joined and nothing is committed. ``options`` are those of an
    admin client.

    Raises UnknownTopicOrPartitionError, ValueError for a place, OffsetOutOfRangeError if retention
    deletes records before they are read, and KafkaTimeoutError if no record arrives for
    ``timeout_ms``.
    """
    batches = read_batches_async(
        topic,
        since=since,
        until=until,
        partitions=partitions,
        isolation_level=isolation_level,
        progress=progress,
        timeout_ms=timeout_ms,
        **options,
    )
    async with aclosing(batches) as parts:
        return RecordTable([columns async for part in parts for columns in part.batches])


async def read_batches_async(
    topic: str,
    *,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    progress: Callable[[ReadProgress], object] | None = None,
    timeout_ms: float = TIMEOUT_MS,
    **options: Unpack[_options.AdminOptions],
) -> AsyncGenerator[RecordTable, None]:
    """Yield the records of :func:`read_async` as they arrive, in tables of about 4 MiB.

    Arguments and errors are those of :func:`read_async`. Records of one partition are in order.
    """
    is_committed = isolation_level == "read_committed"
    more: dict[str, Any] = {**READER_OPTIONS, "isolation_level": isolation_level, **options}
    async with AsyncKafkaConsumer(**more) as consumer:
        async with AsyncKafkaAdminClient(**options) as admin:
            bounds = await find_bounds_async(
                admin,
                topic,
                since,
                until,
                partitions,
                committed=is_committed,
                timeout_ms=timeout_ms,
            )
        async with aclosing(read_bounds_async(consumer, bounds, progress, timeout_ms)) as parts:
            async for part in parts:
                yield part


async def read_bounds_async(
    consumer: AsyncKafkaConsumer[Any, Any],
    bounds: Mapping[TopicPartition, Bounds],
    progress: Callable[[ReadProgress], object] | None = None,
    timeout_ms: float = TIMEOUT_MS,
) -> AsyncGenerator[RecordTable, None]:
    """Yield the records within the bounds, with a consumer that has the options of a reader."""
    left = {tp: each for tp, each in bounds.items() if each.start < each.end}
    total = offsets_of(bounds)
    positions = {tp: each.start for tp, each in left.items()}
    consumer.assign(sorted(left))
    for tp, each in left.items():
        consumer.seek(tp, each.start, until=each.end)
    records = 0
    advanced_at = anyio.current_time()
    while left:
        polled = await consumer.poll_batches(timeout_ms=POLL_MS)
        before, positions = positions, positions | consumer.positions()
        part = RecordTable(within(polled, bounds))
        left = {tp: each for tp, each in left.items() if positions[tp] < each.end}
        if positions != before:
            advanced_at = anyio.current_time()
            records += len(part)
            if progress is not None:
                unread = {tp: each._replace(start=positions[tp]) for tp, each in left.items()}
                progress(ReadProgress(records, total - offsets_of(unread), total))
        elif anyio.current_time() - advanced_at > timeout_ms / 1000:
            raise stalled(consumer, left, positions, timeout_ms)
        if len(part):
            yield part
            advanced_at = anyio.current_time()  # the caller's time does not count


async def find_bounds_async(
    admin: AsyncKafkaAdminClient,
    topic: str,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    *,
    committed: bool = False,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition. Those of an empty range have equal ends.

    With ``committed``, no range has offsets from the first one of an open transaction on. Raise
    ValueError for a place, and UnknownTopicOrPartitionError.
    """
    starts = await _offsets(admin, topic, since, "earliest", timeout_ms)
    ends = await _offsets(admin, topic, until, "latest", timeout_ms)
    if committed:
        latest = dict.fromkeys(ends, OffsetSpec.LATEST)
        stable = await admin.list_partition_offsets(
            latest, isolation_level="read_committed", timeout_ms=timeout_ms
        )
        stable.raise_errors()
        ends = {
            tp: end if (last := stable[tp]) is None else min(end, last.offset)
            for tp, end in ends.items()
        }
    known = {tp.partition for tp in ends}
    wanted = known if partitions is None else set(partitions)
    given = {number for place in (since, until) if isinstance(place, Mapping) for number in place}
    if unknown := (wanted | given) - known:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {min(unknown)}")
    return {
        tp: Bounds(min(starts[tp], end), end)
        for tp, end in sorted(ends.items())
        if tp.partition in wanted
    }


async def _offsets(
    admin: AsyncKafkaAdminClient, topic: str, place: Place, default: str, timeout_ms: float | None
) -> dict[TopicPartition, int]:
    """Return the offset at a place for each partition. The log of the partition limits it."""
    if isinstance(place, str) and re.fullmatch(r"[+-]\d+", place):
        raise ValueError(
            f"{place!r} is a shift, which a range cannot have: give an offset or a time"
        )
    if not isinstance(place, Mapping):
        return await admin.find_offsets(place, topic, timeout_ms)
    found = await admin.find_offsets(default, topic, timeout_ms)
    return {tp: place.get(tp.partition, at) for tp, at in found.items()}
