"""Assignors of the coordinator against cases that Apache Kafka's own classes computed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.groups.consumer.assignors import ASSIGNORS, MemberSpec, assign

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "server_assignors.json").read_text()
)["vectors"]
Named = dict[str, dict[str, list[int]]]


def assigned(case: Mapping[str, Any], rng: random.Random | None = None) -> Named:
    """Return our assignment, by names of topics. ``rng`` shuffles the members and topics."""
    ids = {name: uuid(topic["id"]) for name, topic in case["topics"].items()}
    names = {topic_id: name for name, topic_id in ids.items()}
    topics = [
        (ids[name], case["topics"][name]["partitions"])
        for name in case["topic_iteration"]
        if name in ids
    ]
    members = [
        (
            member_id,
            MemberSpec(
                member.get("instance_id"),
                frozenset(ids[name] for name in member["topics"] if name in ids),
                {
                    ids.get(name, name.encode().rjust(16)): frozenset(partitions)
                    for name, partitions in member["previous"].items()
                },
            ),
        )
        for member_id, member in case["members"].items()
    ]
    if rng is not None:
        rng.shuffle(topics)
        rng.shuffle(members)
    found = assign(case["assignor"], dict(members), dict(topics))
    return {
        member_id: {names[topic_id]: sorted(numbers) for topic_id, numbers in parts.items()}
        for member_id, parts in found.items()
    }


def uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def expected(case: Mapping[str, Any]) -> Named:
    return {member_id: case["expected"].get(member_id, {}) for member_id in case["members"]}


def pairs(parts: Mapping[str, list[int]]) -> set[tuple[str, int]]:
    return {(topic, number) for topic, numbers in parts.items() for number in numbers}


def kept(case: Mapping[str, Any], assignment: Named) -> int:
    """Return the number of partitions that stay with their member."""
    return sum(
        len(pairs(assignment[member_id]) & pairs(member["previous"]))
        for member_id, member in case["members"].items()
    )


def check_rules(case: Mapping[str, Any], assignment: Named) -> None:
    """Check that each partition has one owner that wants it, balance, and stickiness."""
    owned = [pair for parts in assignment.values() for pair in pairs(parts)]
    assert len(owned) == len(set(owned))
    wanted = {
        name: topic["partitions"]
        for name, topic in case["topics"].items()
        if any(name in member["topics"] for member in case["members"].values())
    }
    assert set(owned) == {(name, n) for name, count in wanted.items() for n in range(count)}
    for member_id, parts in assignment.items():
        assert set(parts) <= set(case["members"][member_id]["topics"])
    sizes = sorted(len(pairs(parts)) for parts in assignment.values())
    theirs = sorted(len(pairs(parts)) for parts in expected(case).values())
    assert sizes[-1] - sizes[0] <= theirs[-1] - theirs[0]
    assert kept(case, assignment) >= kept(case, expected(case))


def test_all_cases_are_there() -> None:
    assert len(VECTORS) == 240
    assert sum(case["order_sensitive"] for case in VECTORS) == 81


@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignment_is_equal_to_that_of_kafka(name: str) -> None:
    cases = [v for v in VECTORS if v["assignor"] == name and not v["order_sensitive"]]
    assert len(cases) >= 70
    for case in cases:
        assert assigned(case) == expected(case)


def test_assignment_is_balanced_and_sticky_where_order_matters() -> None:
    for case in VECTORS:
        if case["order_sensitive"]:
            check_rules(case, assigned(case))


def test_assignment_is_balanced_and_sticky_in_any_order() -> None:
    rng = random.Random(848)
    for case in VECTORS:
        check_rules(case, assigned(case, rng))


def test_members_without_topics_get_nothing() -> None:
    topic = bytes(16)
    nothing = MemberSpec(None, frozenset(), {})
    for name in ASSIGNORS:
        assert assign(name, {}, {}) == {}
        assert assign(name, {"a": nothing, "b": nothing}, {topic: 3}) == {"a": {}, "b": {}}
        reader = MemberSpec(None, frozenset({topic}), {})
        found = assign(name, {"a": nothing, "b": reader}, {topic: 3})
        assert found == {"a": {}, "b": {topic: frozenset(range(3))}}


def test_topics_that_do_not_exist_are_left_out() -> None:
    gone, there = bytes(16), bytes([1]) * 16
    member = MemberSpec(
        None, frozenset({gone, there}), {gone: frozenset({0}), there: frozenset({9})}
    )
    for name in ASSIGNORS:
        assert assign(name, {"a": member}, {there: 2}) == {"a": {there: frozenset({0, 1})}}
        assert assign(name, {"a": member}, {}) == {"a": {}}


def test_range_sorts_static_members_before_dynamic_ones() -> None:
    topic = bytes(16)
    members = {
        member_id: MemberSpec(instance, frozenset({topic}), {})
        for member_id, instance in (("a", None), ("y", "2"), ("z", "1"), ("b", None))
    }
    found = assign("range", members, {topic: 6})
    assert [sorted(found[each][topic]) for each in "zyab"] == [[0, 1], [2, 3], [4], [5]]
