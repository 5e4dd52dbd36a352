"""Cases of the coordinator's assignors: computed by us, and checked."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any

from kohort.broker.groups.assignors import MemberSpec, assign

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
