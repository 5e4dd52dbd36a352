"""The assignor of share groups compared with the cases of Kafka's own class."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from kohort.broker.groups.assignors import MemberSpec, assign_simple

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "share_assignor.json").read_text()
)["cases"]


def assigned(case: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    members = {
        member["id"]: MemberSpec(
            None,
            frozenset(name.encode() for name in member["subscribed"]),
            {
                name.encode(): frozenset(partitions)
                for name, partitions in case["previous"].get(member["id"], {}).items()
            },
        )
        for member in case["members"]
    }
    assignable = {
        name.encode(): frozenset(topic["assignable"])
        for name, topic in case["topics"].items()
        if topic["assignable"]
    }
    return {
        member_id: {topic.decode(): sorted(partitions) for topic, partitions in parts.items()}
        for member_id, parts in assign_simple(members, assignable).items()
    }


def sharing(assignment: dict[str, dict[str, list[int]]]) -> Counter[tuple[str, int]]:
    """Return the number of members on each partition."""
    return Counter(
        (topic, partition)
        for parts in assignment.values()
        for topic, partitions in parts.items()
        for partition in partitions
    )


def test_quota_sharing_and_coverage_are_those_of_apache_kafka() -> None:
    assert len(CASES) == 60
    for case in CASES:
        found, expected = assigned(case), case["expected"]
        assert sharing(found) == sharing(expected), case["case"]
        for member_id, parts in expected.items():
            mine = found[member_id]
            if case["subscriptions"] == "homogeneous":
                # Which partitions of which topic a member gets follows the order of Java's hashes.
                assert sum(map(len, mine.values())) == sum(map(len, parts.values())), case["case"]
            else:
                sizes = {topic: len(partitions) for topic, partitions in parts.items()}
                assert {topic: len(each) for topic, each in mine.items()} == sizes, case["case"]


def test_any_former_assignment_leaves_no_partition_and_no_member_out() -> None:
    rng = random.Random(1)
    for _ in range(300):
        partitions, members = rng.randint(1, 9), rng.randint(1, 12)
        specs = {
            str(number): MemberSpec(
                None,
                frozenset([b"t"]),
                {b"t": frozenset(p for p in range(partitions + 2) if rng.random() < 0.4)},
            )
            for number in range(members)
        }
        found = assign_simple(specs, {b"t": frozenset(range(partitions))})
        covered = {partition for parts in found.values() for partition in parts.get(b"t", ())}
        assert covered == set(range(partitions))
        assert members < partitions or all(found.values())


def test_members_keep_what_they_have() -> None:
    spec = MemberSpec(None, frozenset([b"t"]), {})
    alone = assign_simple({"a": spec}, {b"t": frozenset({0, 1, 2, 3})})
    specs = {"a": spec._replace(target=alone["a"]), "b": spec}
    both = assign_simple(specs, {b"t": frozenset({0, 1, 2, 3})})
    assert both["a"][b"t"] < alone["a"][b"t"]
    assert len(both["a"][b"t"]) == len(both["b"][b"t"]) == 2
