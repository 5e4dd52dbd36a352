"""A log with recreated topics is checked topic by topic."""

from __future__ import annotations

import pytest

from kohort.types import TopicPartition
from tests.simulation.events import (
    Assigned,
    CommitAccepted,
    Delivered,
    Event,
    EventLog,
    GenerationStored,
    OffsetStored,
    Processed,
    Produced,
    Recreated,
    Settled,
)
from tests.simulation.incarnations import value_of
from tests.simulation.invariants import violations

T0 = TopicPartition("t", 0)
OURS = frozenset({T0})


def produced(number: int, count: int) -> list[Event]:
    return [
        Produced(partition=T0, offset=at, value=value_of("t", number, 0, at)) for at in range(count)
    ]


def read(number: int, first: int, end: int) -> list[Event]:
    offsets = tuple(range(first, end))
    values = tuple(value_of("t", number, 0, at) for at in offsets)
    return [
        Delivered(who="a", partition=T0, offsets=offsets, values=values),
        Processed(who="a", partition=T0, offsets=offsets),
    ]


def accepted(offset: int) -> list[Event]:
    taken = CommitAccepted(member_id="a", generation=1, offsets=((T0, offset),))
    return [OffsetStored(partition=T0, offset=offset), taken]


BEGUN: list[Event] = [
    GenerationStored(generation=1, assignments=(("a", "a", OURS),)),
    Assigned(who="a", partitions=OURS),
    *produced(1, 5),
    *read(1, 0, 3),
    *accepted(3),
    Recreated(topic="t", number=2),
    *produced(2, 9),
    *read(1, 3, 5),
]
SETTLED = Settled(assignments=(("a", OURS),))


def judged(*events: Event) -> list[str]:
    log = EventLog()
    for event in [*BEGUN, *events]:
        log.add(event)
    return [sentence.partition(":")[0] for sentence in violations(log, "recreated")]


def test_recreated_topic_that_is_read_from_its_beginning_is_good() -> None:
    assert judged(*read(2, 0, 9), *accepted(9), SETTLED) == []


@pytest.mark.parametrize(
    ("events", "check"),
    [
        (accepted(5), "commits_are_of_what_is_done"),
        (read(2, 5, 9), "nobody_starts_ahead"),
        ([*read(2, 0, 5), *read(2, 6, 9)], "positions_are_contiguous"),
        ([*read(2, 0, 5), SETTLED], "everything_is_processed"),
    ],
)
def test_violation_in_a_recreated_topic_is_found(events: list[Event], check: str) -> None:
    assert check in judged(*events)
