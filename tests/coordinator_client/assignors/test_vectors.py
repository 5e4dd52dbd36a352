"""The assignors against the results of Apache Kafka's assignors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kohort.coordinator_client.assignors import ClusterTopics, Subscription, resolve_assignors
from kohort.coordinator_client.classic._assignment_check import check_assignments
from kohort.types import TopicPartition

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "assignor_vectors.json").read_text()
)["vectors"]


def _partition_counts(vector: dict[str, Any]) -> dict[str, int]:
    """Return the sizes of the topics in this round.

    The file has the topics of a chain after its last round, and topics grow between rounds. The
    test reads the size from the result and the ownership. The assignor assigns every partition of a
    subscribed topic, or leaves it out because its owner has to revoke it first.
    """
    counts: dict[str, int] = {}
    owned = [said["owned"] for said in vector["members"].values()]
    for pairs in [*vector["expected"].values(), *owned]:
        for topic, number in pairs:
            if topic in vector["topics"]:
                counts[topic] = max(counts.get(topic, 0), number + 1)
    assert all(count <= vector["topics"][topic] for topic, count in counts.items())
    return counts


def _cluster(vector: dict[str, Any]) -> ClusterTopics:
    racks = {
        TopicPartition(topic, number): frozenset(found)
        for topic, partitions in vector.get("partition_racks", {}).items()
        for number, found in enumerate(partitions)
    }
    return ClusterTopics(_partition_counts(vector), racks)


def _subscriptions(vector: dict[str, Any]) -> dict[str, Subscription]:
    return {
        member: Subscription(
            topics=tuple(said["topics"]),
            user_data=base64.b64decode(said["user_data"]) if "user_data" in said else None,
            owned=tuple(TopicPartition(*pair) for pair in said["owned"]),
            generation=said["generation"],
            rack=said.get("rack"),
            group_instance_id=said.get("instance_id"),
        )
        for member, said in vector["members"].items()
    }


def test_the_vectors_of_all_assignors_are_there() -> None:
    names = [vector["assignor"] for vector in VECTORS]
    assert {name: names.count(name) for name in dict.fromkeys(names)} == {
        "range": 38,
        "roundrobin": 38,
        "sticky": 74,
        "cooperative-sticky": 74,
    }


@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: f"{vector['chain']}-{vector['round']}"
)
def test_assigns_as_kafka_does(vector: dict[str, Any]) -> None:
    (assignor,) = resolve_assignors(vector["assignor"])
    cluster, members = _cluster(vector), _subscriptions(vector)
    result = assignor.assign(cluster, members)
    checked = check_assignments(assignor, cluster, members, result, cooperative=False)
    expected = {
        member: sorted(TopicPartition(*pair) for pair in pairs)
        for member, pairs in vector["expected"].items()
    }
    assigned = {member: sorted(given.partitions) for member, given in checked.items()}
    assert assigned == expected
