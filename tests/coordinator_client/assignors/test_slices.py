"""Assignments of large groups in small steps, between which the event loop runs."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator_client.assignors import (
    BUILT_IN,
    Assignment,
    BuiltInAssignor,
    ClusterTopics,
    RangeAssignor,
    Steps,
    StickyAssignor,
    Subscription,
    _slices,
    finish,
    finish_in_slices,
    members_in_order,
)
from kohort.coordinator_client.classic._assignment_check import check_in_steps
from kohort.coordinator_client.classic._embedded_protocol import (
    read_members,
    write_assignments,
    write_subscription,
)
from kohort.protocol.messages import JoinGroupResponse
from kohort.types import TopicPartition
from tests.support.virtual import run_virtual

Members = dict[str, Subscription]
CALLS_A_STEP = 12_000
"""Maximum calls of a step, about 5 ms of work. One step for all work would be 50 times as many."""
RATIO = 3.0
"""Maximum ratio of range to sticky. The defect that this test excludes had a ratio of 23 to 57."""


def large_group(kind: str) -> tuple[ClusterTopics, Members]:
    """Return a group of 200 members and 20 topics of 400 partitions."""
    rng = random.Random(7)
    counts = {f"t{number:02}": 400 for number in range(20)}
    racks = {}
    if kind == "racks":
        racks = {
            TopicPartition(topic, number): frozenset(rng.sample("abc", 2))
            for topic, count in counts.items()
            for number in range(count)
        }
    members = {}
    for number in range(200):
        wanted = sorted(counts)
        if kind == "mixed":
            wanted.remove(rng.choice(wanted))
        rack = "abc"[number % 3] if kind == "racks" else None
        members[f"m{number}"] = Subscription(tuple(wanted), rack=rack)
    return ClusterTopics(counts, racks), members


def calls_of_steps(steps: Steps[Any]) -> list[int]:
    """Run a computation and return the number of calls in each step, C functions included."""
    found = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            found[-1] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in steps:
            found.append(0)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("kind", ["plain", "racks", "mixed"])
@pytest.mark.parametrize("assignor", BUILT_IN, ids=lambda each: each.name)
def test_assignor_makes_small_steps_in_a_large_group(
    assignor: type[BuiltInAssignor], kind: str
) -> None:
    cluster, members = large_group(kind)
    calls = calls_of_steps(assignor().steps(cluster, members))
    assert len(calls) >= len(cluster.partitions)
    assert max(calls) < CALLS_A_STEP


def test_leader_makes_small_steps_in_a_large_group() -> None:
    cluster, members = large_group("plain")
    kind = JoinGroupResponse.JoinGroupResponseMember
    response = JoinGroupResponse(
        members=[
            kind(member_id=name, metadata=write_subscription(said))
            for name, said in members.items()
        ]
    )
    assert finish(read_members(response, "g")) == members
    assigned = RangeAssignor().assign(cluster, members)
    given = {name: Assignment(tuple(partitions)) for name, partitions in assigned.items()}
    for steps in (
        read_members(response, "g"),
        check_in_steps(RangeAssignor(), cluster, members, assigned, cooperative=False),
        write_assignments(given),
    ):
        assert max(calls_of_steps(steps)) < CALLS_A_STEP


def test_range_takes_no_longer_than_sticky() -> None:
    cluster = ClusterTopics({f"t{number}": 400 for number in range(10)})
    members = {f"m{number}": Subscription(tuple(cluster.partitions)) for number in range(400)}
    took: dict[str, list[float]] = {"range": [], "sticky": []}
    for _ in range(5):
        for assignor in (RangeAssignor(), StickyAssignor()):
            begun = time.thread_time()
            assignor.assign(cluster, members)
            took[assignor.name].append(time.thread_time() - begun)
    assert min(took["range"]) < RATIO * min(took["sticky"])


@settings(deadline=None)
@given(
    counts=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 12)),
    wanted=st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=15),
    static=st.sets(st.integers(0, 14)),
)
def test_range_deals_what_the_definition_says(
    counts: dict[str, int], wanted: list[set[str]], static: set[int]
) -> None:
    members = {
        f"m{number}": Subscription(
            tuple(topics), group_instance_id=f"i{20 - number}" if number in static else None
        )
        for number, topics in enumerate(wanted)
    }
    expected: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for topic, count in counts.items():
        who = [name for name in members_in_order(members) if topic in members[name].topics]
        for number in range(count if who else 0):
            # The first members have one partition more, so the loop finds them by counting down.
            share, extras = divmod(count, len(who))
            larger = extras * (share + 1)
            index = (
                number // (share + 1) if number < larger else extras + (number - larger) // share
            )
            expected[who[index]].add(TopicPartition(topic, number))
    assigned = RangeAssignor().assign(ClusterTopics(counts), members)
    assert {name: set(partitions) for name, partitions in assigned.items()} == expected
    assert sum(map(len, assigned.values())) == sum(map(len, expected.values()))


def work(steps: int) -> Steps[str]:
    for _ in range(steps):
        yield
    return "done"


async def turns_during(steps: int) -> int:
    """Count how often another task runs during a computation."""
    turns, over = 0, False

    async def other() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.lowlevel.checkpoint()
        turns = 0
        assert await finish_in_slices(work(steps)) == "done"
        over = True
    return turns


@pytest.mark.anyio
async def test_in_slices_gives_the_loop_turns_as_time_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def current_time() -> float:
            nonlocal now
            now += _slices.SLICE_SECONDS / 4
            return now

    monkeypatch.setattr(_slices, "anyio", Clock)
    assert await turns_during(100) >= 10


def test_in_slices_gives_no_turns_on_a_virtual_clock() -> None:
    async def main() -> None:
        assert await turns_during(10_000) <= 1

    run_virtual(main)
