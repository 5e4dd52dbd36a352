"""Lookup of the bounds of partition logs, independent of the isolation level."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kohort import KafkaConsumer, TopicPartition
from kohort.spark_connector._consumers import borrowed_consumer

LOOK_UP_MS = 2_000
"""Time limit of a lookup. While it runs, the task reads no other partitions."""

_LEVEL = "isolation.level"


class LogBounds(NamedTuple):
    """Log start offset, and the offset after the last record (the high watermark)."""

    start: int
    end: int


def log_bounds(
    consumer: KafkaConsumer, properties: Mapping[str, str], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogBounds | None]:
    """Return the bounds of each partition, or None for a deleted one. Raise KafkaTimeoutError."""
    gone = _gone(consumer, partitions)
    existing = sorted(set(partitions) - gone)
    found: dict[TopicPartition, LogBounds | None] = dict.fromkeys(gone)
    if existing:
        first = consumer.beginning_offsets(existing, LOOK_UP_MS)
        ends = _high_watermarks(consumer, properties, existing)
        found |= {tp: LogBounds(first[tp], ends[tp]) for tp in existing}
    return found


def _gone(consumer: KafkaConsumer, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    topics = {tp.topic for tp in partitions}
    # topic_ids() has a timeout and asks for these topics only. Old brokers return no ids.
    names = set(consumer.topic_ids(topics, LOOK_UP_MS))
    if not names >= topics:
        names = consumer.topics()
    counts = {name: consumer.partitions_for_topic(name) for name in topics & names}
    return {tp for tp in partitions if tp.partition not in counts.get(tp.topic, ())}


def positions_within_log(
    properties: Mapping[str, str], positions: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions whose position is past the last stable offset but within the log.

    An open transaction causes that. ``positions`` are past the ends that a lookup with
    ``properties`` returned. Raise KafkaTimeoutError.
    """
    if not positions or _LEVEL not in properties:
        return set()
    ends = _end_offsets_uncommitted(properties, sorted(positions))
    return {tp for tp, at in positions.items() if at <= ends[tp]}


def _high_watermarks(
    consumer: KafkaConsumer, properties: Mapping[str, str], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if _LEVEL not in properties:
        return consumer.end_offsets(partitions, LOOK_UP_MS)
    return _end_offsets_uncommitted(properties, partitions)


def _end_offsets_uncommitted(
    properties: Mapping[str, str], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    # An open transaction delays the last stable offset, so use a read_uncommitted consumer.
    with borrowed_consumer({**properties, _LEVEL: "read_uncommitted"}) as other:
        return other.end_offsets(partitions, LOOK_UP_MS)
