"""State of a read, for both APIs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kohort.errors import KafkaTimeoutError
from kohort.reading._bounds import Bounds
from kohort.records import RecordColumns
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer import AsyncKafkaConsumer, KafkaConsumer


class ReadProgress(NamedTuple):
    """State of a read."""

    records: int
    """Records that were returned."""
    offsets: int
    """Offsets that were passed. Compaction and transactions leave offsets without a record."""
    total: int
    """Offsets of the range."""


ReadProgress.__module__ = "kohort"  # pickles and tracebacks have the public name


def offsets_of(bounds: Mapping[TopicPartition, Bounds]) -> int:
    return sum(each.end - each.start for each in bounds.values())


def within(
    polled: Iterable[RecordColumns], bounds: Mapping[TopicPartition, Bounds]
) -> Iterator[RecordColumns]:
    """Yield the rows before the end of each partition."""
    for columns in polled:
        end = bounds[TopicPartition(columns.topic, columns.partition)].end
        rows = bisect_left(columns.offset, end)
        if rows:
            yield columns if rows == len(columns) else columns[:rows]


def stalled(
    consumer: KafkaConsumer[Any, Any] | AsyncKafkaConsumer[Any, Any],
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
