"""Ranges of offsets, and their distribution to Spark's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from kohort import TopicPartition
from kohort.errors import InvalidOptionError

OFFSETS_PER_TASK = 10_000
"""Fixed cost of a Python task of Spark, as the number of records read in the same time."""
MAX_SMALL_TASKS = 32
"""Limit of tasks below OFFSETS_PER_TASK if the number of cores is not known."""
OFFSETS_PER_SMALL_TASK = 1_000
"""Offsets per task if more than MAX_SMALL_TASKS partitions have records and cores are unknown."""
MAX_PIECES = 100_000
"""Limit of pieces, which protects the driver's memory and time from a wrong option."""


class OffsetRange(NamedTuple):
    """Offsets of one partition from ``start`` up to, but not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Number of offsets. The number of records may be lower."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class SkippedData(NamedTuple):
    """Data of one partition that has no rows, from ``offset`` up to ``next_offset``."""

    topic_partition: TopicPartition
    offset: int
    next_offset: int | None
    reason: str
    raw: bytes | None = None
    """Bytes of a batch that cannot be read."""


def split_into_tasks(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    max_tasks: int | None = None,
    cores: int | None = None,
) -> list[list[OffsetRange]]:
    """Return the ranges of each task. Empty ranges and empty tasks are left out.

    Small ranges share a task if there are more of them than ``cores`` of all executors. A range is
    split only for ``max_records`` per piece or for ``min_partitions`` tasks. ``max_tasks`` has
    precedence over all of these. The same input gives the same tasks. Raise InvalidOptionError for
    more than MAX_PIECES.
    """
    pieces = sorted(each for each in ranges if each.size > 0)
    total = sum(each.size for each in pieces)
    if not pieces:
        return []
    if max_records is not None:
        _check_count(sum(-(-each.size // max_records) for each in pieces), "maxRecordsPerPartition")
        pieces = [
            part for each in pieces for part in split_range(each, -(-each.size // max_records))
        ]
    wanted = min(len(pieces), max(-(-total // OFFSETS_PER_TASK), _parallel(pieces, total, cores)))
    if max_records is not None:
        wanted = len(pieces)
    if min_partitions is not None and min_partitions > wanted:
        wanted = min_partitions
        _check_count(wanted, "minPartitions")
        if wanted > len(pieces):
            pieces = [
                part
                for each, count in zip(pieces, _piece_counts(pieces, wanted), strict=True)
                for part in split_range(each, count)
            ]
    if max_tasks is not None:
        wanted = min(wanted, max_tasks)
    return _pack(pieces, min(wanted, len(pieces)))


def _parallel(pieces: list[OffsetRange], total: int, cores: int | None) -> int:
    """Return the number of tasks that keeps the cores at work, whatever each record costs."""
    if cores is not None:
        return cores
    if len(pieces) <= MAX_SMALL_TASKS:
        return len(pieces)
    return min(MAX_SMALL_TASKS, total // OFFSETS_PER_SMALL_TASK)


def _check_count(pieces: int, option: str) -> None:
    if pieces > MAX_PIECES:
        raise InvalidOptionError(
            f"option {option} would cut the ranges into {pieces} pieces, and the limit is "
            f"{MAX_PIECES}. Check the size of the ranges"
        )


def _piece_counts(pieces: list[OffsetRange], count: int) -> list[int]:
    """Return the number of pieces per range, ``count`` in total or one per offset."""
    counts = [1] * len(pieces)
    largest: list[tuple[float, int]]
    largest = [(-each.size, index) for index, each in enumerate(pieces) if each.size > 1]
    heapq.heapify(largest)
    for _ in range(count - len(pieces)):
        if not largest:
            break
        index = largest[0][1]
        counts[index] += 1
        if counts[index] < pieces[index].size:
            heapq.heapreplace(largest, (-pieces[index].size / counts[index], index))
        else:
            heapq.heappop(largest)
    return counts


def split_range(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Return up to ``count`` ranges of nearly the same size, at least one."""
    count = max(1, min(count, whole.size))
    marks = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(marks)]


def _pack(pieces: list[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Assign the largest ranges first, each to the task with the fewest offsets."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        load, number = heapq.heappop(loads)
        tasks[number].append(piece)
        heapq.heappush(loads, (load + piece.size, number))
    return [joined(task) for task in tasks]


def joined(pieces: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in order, with adjacent ranges merged."""
    result: list[OffsetRange] = []
    for piece in sorted(pieces):
        last = result[-1] if result else None
        if last and last.topic_partition == piece.topic_partition and last.end == piece.start:
            result[-1] = last._replace(end=piece.end)
        else:
            result.append(piece)
    return result
