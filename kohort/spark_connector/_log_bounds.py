"""Where the logs of partitions begin and end, whatever is stable of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kohort import KafkaConsumer, TopicPartition
from kohort.spark_connector._consumers import borrowed_consumer

LOOK_UP_MS = 2_000
"""While it is waited for, nothing is read of other partitions."""

_LEVEL = "isolation.level"


class LogBounds(NamedTuple):
    """The first offset of a log, and the one behind its last record (the high watermark)."""

    start: int
    end: int


def log_bounds(
    consumer: KafkaConsumer, properties: Mapping[str, str], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogBounds | None]:
    """The bounds of each partition; None: there is no such partition. KafkaTimeoutError."""
    gone = _gone(consumer, partitions)
    there = sorted(set(partitions) - gone)
    found: dict[TopicPartition, LogBounds | None] = dict.fromkeys(gone)
    if there:
        first = consumer.beginning_offsets(there, LOOK_UP_MS)
        ends = _high_watermarks(consumer, properties, there)
        found |= {tp: LogBounds(first[tp], ends[tp]) for tp in there}
    return found


def _gone(consumer: KafkaConsumer, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    topics = {tp.topic for tp in partitions}
    # With a timeout, and of these topics only. One without an id may be of an old broker.
    names = set(consumer.topic_ids(topics, LOOK_UP_MS))
    if not names >= topics:
        names = consumer.topics()
    counts = {name: consumer.partitions_for_topic(name) for name in topics & names}
    return {tp for tp in partitions if tp.partition not in counts.get(tp.topic, ())}


def positions_within_log(
    properties: Mapping[str, str], positions: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Partitions that are only behind the last stable offset: a transaction is open there.

    ``positions`` are behind the ends that were looked up with ``properties``. KafkaTimeoutError.
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
    # An open transaction holds the last stable offset back, so another one has to ask.
    with borrowed_consumer({**properties, _LEVEL: "read_uncommitted"}) as other:
        return other.end_offsets(partitions, LOOK_UP_MS)
