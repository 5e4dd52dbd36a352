"""Assignors of the coordinator against cases that Apache Kafka's own classes computed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.groups.assignors import ASSIGNORS, MemberSpec, assign
from tests.broker.groups.consumer.assignor_cases import assigned, check_rules, expected

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "server_assignors.json").read_text()
)["vectors"]


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
