"""Recreated topics: each event belongs to one of the topics that have had the same name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from kohort.types import TopicPartition
from tests.simulation.events import (
    Assigned,
    CommitAccepted,
    Delivered,
    Event,
    EventLog,
    GenerationStored,
    OffsetStored,
    Partitions,
    Processed,
    Produced,
    Recreated,
    Settled,
)

MARK = "@"


def name_of(topic: str, number: int) -> str:
    """Return the name in a log of the ``number``-th topic with this name, from 1."""
    return topic if number == 1 else f"{topic}{MARK}{number}"


def value_of(topic: str, number: int, partition: int, index: int) -> str:
    """Return a record's value, which names the topic that it was written to."""
    return name_of(f"{topic}{partition}.{index}", number)


def number_of(value: str) -> int:
    """Return the number of the topic that a value was written to."""
    return int(value.partition(MARK)[2] or 1)


def named_alike(tp: TopicPartition) -> TopicPartition:
    """Return the partition of that number in the topic that has the name first."""
    return TopicPartition(tp.topic.partition(MARK)[0], tp.partition)


def by_incarnation(log: EventLog) -> EventLog:
    """Return the log with a separate name for each topic. Without recreated topics it stays the
    same.

    A record belongs to the topic that it was written to. A stored offset belongs to the topic that
    existed then. The owner of a partition owns it in every topic with the name, and at the end in
    the last one.
    """
    last = Counter({event.topic: event.number for event in log.of(Recreated)})
    if not last:
        return log
    result = EventLog()
    there: Counter[str] = Counter()
    delivered: dict[tuple[str, TopicPartition], int] = {}

    def put(tp: TopicPartition, number: int) -> TopicPartition:
        return TopicPartition(name_of(tp.topic, number), tp.partition)

    def now(tp: TopicPartition) -> TopicPartition:
        return put(tp, there[tp.topic] or 1)

    def ever(partitions: Iterable[TopicPartition]) -> Partitions:
        return frozenset(
            put(tp, number) for tp in partitions for number in range(1, max(last[tp.topic], 1) + 1)
        )

    for event in log:
        new: Event = event
        match event:
            case Recreated(topic=topic, number=number):
                there[topic] = number
            case Produced(partition=tp) | OffsetStored(partition=tp):
                new = replace(event, partition=now(tp))
            case Delivered(who=who, partition=tp, values=values):
                delivered[who, tp] = number_of(values[0])
                new = replace(event, partition=put(tp, delivered[who, tp]))
            case Processed(who=who, partition=tp):
                new = replace(event, partition=put(tp, delivered[who, tp]))
            case CommitAccepted(offsets=offsets):
                new = replace(event, offsets=tuple((now(tp), at) for tp, at in offsets))
            case Assigned(partitions=partitions):
                new = replace(event, partitions=ever(partitions))
            case GenerationStored(assignments=assignments):
                shares = tuple((one, two, ever(share)) for one, two, share in assignments)
                new = replace(event, assignments=shares)
            case Settled(assignments=dealt):
                final = tuple((slot, frozenset(map(now, share))) for slot, share in dealt)
                new = replace(event, assignments=final)
        result.add(new)
    return result
