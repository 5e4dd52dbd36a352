"""Filters of a batch query that become ranges of offsets.

Spark gets all filters back and applies them to the rows. So a range may be wider than the filters,
and never narrower. A lower bound of the timestamp is the first offset with that time or a later
one: all records before it are older. An upper bound is none, because a later record may be older.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kohort import TopicPartition
from kohort.spark_connector._offsets import MAX_OFFSET
from kohort.spark_connector._ranges import OffsetRange

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

FirstOffsets = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
"""Function that returns the first offsets at or after times, None where there is no record."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from ``first`` up to, but not including, ``end``."""

    first: int = 0
    end: int = MAX_OFFSET + 1

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.first, other.first), min(self.end, other.end))


@dataclass(frozen=True, slots=True)
class ReadFilters:
    """Bounds of the records that filters let pass."""

    topics: frozenset[str] | None = None
    """None for all topics."""
    partitions: Interval = field(default_factory=Interval)
    offsets: Interval = field(default_factory=Interval)
    since_ms: int | None = None
    """Time of the oldest record, in milliseconds since 1970."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> ReadFilters:
        """Return the bounds of filters that all have to hold. Others are left to Spark."""
        found = cls()
        for each in filters:
            found = found._with(each)
        return found

    def _with(self, given: Filter) -> ReadFilters:
        attribute: tuple[str, ...] = getattr(given, "attribute", ())
        column = attribute[0].lower() if len(attribute) == 1 else ""
        if column == "topic":
            topics = _texts(given)
            if topics is not None:
                return replace(self, topics=topics if self.topics is None else self.topics & topics)
        elif column == "timestamp":
            since = _since(given)
            if since is not None and since >= 0:  # a record without a timestamp has -1 ms
                return replace(self, since_ms=max(since, self.since_ms or 0))
        elif column in ("partition", "offset"):
            interval = _interval(given)
            if interval is not None and column == "offset":
                return replace(self, offsets=self.offsets & interval)
            if interval is not None:
                return replace(self, partitions=self.partitions & interval)
        return self

    def narrow(
        self, ranges: Iterable[OffsetRange], first_offsets: FirstOffsets
    ) -> list[OffsetRange]:
        """Return the parts of the ranges that can have records that pass."""
        chosen = [
            each._replace(
                start=max(each.start, self.offsets.first), end=min(each.end, self.offsets.end)
            )
            for each in ranges
            if (self.topics is None or each.topic in self.topics)
            and self.partitions.first <= each.partition < self.partitions.end
        ]
        chosen = [each for each in chosen if each.size > 0]
        if self.since_ms is None or not chosen:
            return chosen
        first = first_offsets({each.topic_partition: self.since_ms for each in chosen})
        narrowed = []
        for each in chosen:
            at = first.get(each.topic_partition)
            if at is not None and at < each.end:
                narrowed.append(each._replace(start=max(each.start, at)))
        return narrowed


def _interval(given: Filter) -> Interval | None:
    """Return the whole numbers that pass, or None if that is not known."""
    if isinstance(given, In):
        values = [value for value in given.value if value is not None]
        if not values or not all(map(_is_number, values)):
            return None
        return Interval(min(values), max(values) + 1)
    value: Any = getattr(given, "value", None)
    if not _is_number(value):
        return None
    if isinstance(given, (EqualTo, EqualNullSafe)):
        return Interval(value, value + 1)
    if isinstance(given, (GreaterThan, GreaterThanOrEqual)):
        return Interval(first=value + isinstance(given, GreaterThan))
    if isinstance(given, (LessThan, LessThanOrEqual)):
        return Interval(end=value + isinstance(given, LessThanOrEqual))
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(given: Filter) -> frozenset[str] | None:
    """Return the texts that pass, or None if that is not known."""
    if isinstance(given, In):
        values = frozenset(value for value in given.value if value is not None)
    elif isinstance(given, (EqualTo, EqualNullSafe)):
        values = frozenset({given.value})
    else:
        return None
    return values if all(isinstance(value, str) for value in values) else None


def _since(given: Filter) -> int | None:
    """Return the lower bound of a time in milliseconds, rounded down, or None without one."""
    if not isinstance(given, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
        return None
    value = given.value
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    return (value - EPOCH) // MILLISECOND
