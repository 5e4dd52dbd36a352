"""Cost of a heartbeat that changes nothing: the same in small and large groups."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest

from kohort.broker.groups import ConsumerMember
from kohort.broker.groups.consumer._member_table import MemberTable
from tests.broker.groups.consumer.consumer_machine import ConsumerMachine, Owned


def settled(members: int, partitions: int, *, is_static: bool, uses_regex: bool) -> ConsumerMachine:
    """Return a group whose members have their target assignments."""
    machine = ConsumerMachine()
    machine.topics.create("t", partitions)
    names = [f"m{number}" for number in range(members)]
    owned: dict[str, Owned] = {name: {} for name in names}
    for name in names:
        fields: dict[str, Any] = {"subscribed_topic_regex": "t|x.*"} if uses_regex else {}
        fields |= {"instance_id": f"of {name}"} if is_static else {}
        response = machine.join(name, () if uses_regex else ("t",), **fields)
        owned[name] = machine.assignment(response) or {}
    machine.pass_time(1)
    while machine.group.state.value != "Stable":
        for name in names:
            epoch = machine.group.members[name].epoch
            response = machine.beat(name, epoch, owned[name])
            assert response.error_code == 0, response
            owned[name] = machine.assignment(response) or owned[name]
    return machine


def executed_lines(machine: ConsumerMachine, name: str, **fields: Any) -> int:
    """Return the number of lines that a heartbeat executes in the group's code."""
    epoch, lines = machine.group.members[name].epoch, 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        response = machine.beat(name, epoch, **fields)
    finally:
        sys.settrace(before)
    assert response.error_code == 0
    assert response.assignment is None
    return lines


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("uses_regex", [False, True])
def test_heartbeat_costs_the_same_in_a_large_group(is_static: bool, uses_regex: bool) -> None:
    fields = {"instance_id": "of m1"} if is_static else {}
    small, large = (
        settled(members, partitions, is_static=is_static, uses_regex=uses_regex)
        for members, partitions in ((2, 4), (40, 400))
    )
    assert executed_lines(small, "m1", **fields) == executed_lines(large, "m1", **fields)


def random_member(rng: random.Random) -> ConsumerMember:
    def partitions() -> dict[bytes, dict[int, int]]:
        numbers = rng.sample(range(4), rng.randrange(3))
        return {rng.choice((b"x", b"y")): dict.fromkeys(numbers, 1)}

    return ConsumerMember(
        rng.choice("abcdef"),
        instance_id=rng.choice((None, "i", "j")),
        topic_regex=rng.choice(("", "p", "q")),
        assigned=partitions(),
        pending_revocation=partitions(),
    )


def test_indexes_follow_every_change_of_members() -> None:
    rng, table = random.Random(1), MemberTable()
    instances: dict[str | None, str] = {}
    for _ in range(2_000):
        member = random_member(rng)
        if rng.random() < 0.3:
            if member.member_id in table:
                instances.pop(table[member.member_id].instance_id, None)
            table.remove(member.member_id)
        else:
            if member.member_id in table:
                instances.pop(table[member.member_id].instance_id, None)
            table.put(member)
            instances[member.instance_id] = member.member_id
        members = list(table.values())
        assert set(table.regexes) == {each.topic_regex for each in members} - {""}
        for instance in "ij":
            assert table.holder(instance) == instances.get(instance)
        for topic_id in (b"x", b"y"):
            for partition in range(4):
                for name in "ab":
                    assert table.is_held_by_other(topic_id, partition, name) == any(
                        (topic_id, partition) in set(each.held)
                        for each in members
                        if each.member_id != name
                    )
