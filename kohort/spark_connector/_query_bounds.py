"""Where the logs of partitions begin and end, whatever is stable of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kohort import KafkaConsumer, TopicPartition
from kohort.spark_connector._consumers import borrowed

LOOK_UP_MS = 2_000
"""While it is waited for, nothing is read of other partitions."""

_LEVEL = "isolation.level"


class Limits(NamedTuple):
    """The first offset of a log, and the one behind its last record (the high watermark)."""

    start: int
    end: int


def limits(
    consumer: KafkaConsumer, properties: Mapping[str, str], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Limits | None]:
    """The limits of each partition; None: there is no such partition. KafkaTimeoutError."""
    gone = _gone(consumer, partitions)
    there = sorted(set(partitions) - gone)
    found: dict[TopicPartition, Limits | None] = dict.fromkeys(gone)
    if there:
        first = consumer.beginning_offsets(there, LOOK_UP_MS)
        behind = _high_watermarks(consumer, properties, there)
        found |= {tp: Limits(first[tp], behind[tp]) for tp in there}
    return found


def _gone(consumer: KafkaConsumer, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    topics = {tp.topic for tp in partitions}
    # With a timeout, and of these topics only. One without an id may be of an old broker.
    names = set(consumer.topic_ids(topics, LOOK_UP_MS))
    if not names >= topics:
        names = consumer.topics()
    counts = {name: consumer.partitions_for_topic(name) for name in topics & names}
    return {tp for tp in partitions if tp.partition not in counts.get(tp.topic, ())}


def still_there(
    properties: Mapping[str, str], positions: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Partitions that are only behind the last stable offset: a transaction is open there.

    ``positions`` are behind the ends that were looked up with ``properties``. KafkaTimeoutError.
    """
    if not positions or _LEVEL not in properties:
        return set()
    behind = _stable_or_not(properties, sorted(positions))
    return {tp for tp, at in positions.items() if at <= behind[tp]}


def _high_watermarks(
    consumer: KafkaConsumer, properties: Mapping[str, str], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if _LEVEL not in properties:
        return consumer.end_offsets(partitions, LOOK_UP_MS)
    return _stable_or_not(properties, partitions)


def _stable_or_not(
    properties: Mapping[str, str], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    # An open transaction holds the last stable offset back, so another one has to ask.
    with borrowed({**properties, _LEVEL: "read_uncommitted"}) as other:
        return other.end_offsets(partitions, LOOK_UP_MS)
