"""Random groups: kohort's assignors and those of Apache Kafka return the same assignments."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kohort.coordinator_client.assignors import ClusterTopics, Subscription, resolve_assignors
from kohort.coordinator_client.assignors._user_data import write_claim, write_generation
from kohort.coordinator_client.classic._assignment_check import check_assignments
from kohort.types import TopicPartition
from tests.support.java_tools import run_tool

PROGRAM = Path(__file__).with_name("Assign.java")
GROUPS = 2_000
Group = tuple[str, ClusterTopics, dict[str, Subscription]]


def random_group(rng: random.Random) -> Group:
    """Return a small group with racks, static members and claims.

    A claim is current, outdated or disputed.
    """
    name = rng.choice(["range", "roundrobin", "sticky", "sticky", *["cooperative-sticky"] * 3])
    topics = {f"topic{n}": rng.choice([0, 1, 2, 3, 6, 10]) for n in range(rng.randrange(1, 6))}
    racks = [f"rack{n}" for n in range(rng.choice([0, 0, 2, 3]))]
    same = rng.random() < 0.5
    members: dict[str, Subscription] = {}
    disputed = rng.random() < 0.3
    taken: set[TopicPartition] = set()
    for n in range(rng.choice([1, 2, 3, 4, 8, 15])):
        wanted = sorted(topics) if same else rng.sample(sorted(topics), rng.randint(1, len(topics)))
        owned = []
        generation = rng.choice([7, 7, 7, 7, 7, 6, 5, -1])
        # Kafka's assignor returns partitions to an earlier owner that no longer subscribes to them
        for topic in topics if generation == 7 and rng.random() < 0.1 else wanted:
            for number in range(topics[topic]):
                tp = TopicPartition(topic, number)
                if rng.random() < 0.4 and (disputed or tp not in taken):
                    owned.append(tp)
                    taken.add(tp)
        rng.shuffle(owned)
        if name == "sticky":
            user_data = rng.choice([write_claim(owned, generation)] * 9 + [None])
        else:
            user_data = write_generation(generation)
        members[f"m{rng.randrange(10**9)}-{n}"] = Subscription(
            topics=tuple(wanted),
            user_data=user_data,
            owned=tuple(owned),
            generation=rng.choice([generation, generation, -1]) if disputed else generation,
            rack=rng.choice([*racks, *racks, "elsewhere"]) if racks else None,
            group_instance_id=f"static-{rng.randrange(10**6)}" if rng.random() < 0.2 else None,
        )
    return name, ClusterTopics(topics, _replicas(rng, topics, racks)), members


def _replicas(
    rng: random.Random, topics: dict[str, int], racks: list[str]
) -> dict[TopicPartition, frozenset[str]]:
    most = min(2, len(racks))
    return {
        TopicPartition(topic, number): frozenset(rng.sample(racks, rng.randint(1, most)))
        for topic, count in topics.items()
        for number in range(count)
        if racks
    }


def as_json(group: Group) -> dict[str, Any]:
    name, cluster, members = group
    return {
        "assignor": name,
        "topics": {
            topic: [
                sorted(cluster.replica_racks(TopicPartition(topic, number)))
                for number in range(count)
            ]
            for topic, count in cluster.partitions.items()
        },
        "members": {
            member: {
                "topics": said.topics,
                "owned": said.owned,
                "generation": said.generation,
                "rack": said.rack,
                "instance": said.group_instance_id,
                "user_data": said.user_data and base64.b64encode(said.user_data).decode(),
            }
            for member, said in members.items()
        },
    }


@pytest.mark.real_kafka
def test_random_groups_are_dealt_as_kafka_deals_them() -> None:
    rng = random.Random(431)
    groups = [random_group(rng) for _ in range(GROUPS)]
    theirs = json.loads(run_tool(str(PROGRAM), stdin=json.dumps([as_json(g) for g in groups])))
    assert len(theirs) == GROUPS
    for number, ((name, cluster, members), assigned) in enumerate(zip(groups, theirs, strict=True)):
        (assignor,) = resolve_assignors(name)
        ours = check_assignments(
            assignor, cluster, members, assignor.assign(cluster, members), cooperative=False
        )
        expected = {
            member: sorted(TopicPartition(*tp) for tp in given)
            for member, given in assigned.items()
        }
        found = {member: sorted(given.partitions) for member, given in ours.items()}
        assert found == expected, (number, as_json(groups[number]))
