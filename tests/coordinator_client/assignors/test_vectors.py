"""The assignors against the results of Apache Kafka's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.coordinator_client.assignors import ClusterTopics, Subscription, resolve_assignors
from kohort.types import TopicPartition

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "assignor_vectors.json").read_text()
)["vectors"]
BUILT = [vector for vector in VECTORS if vector["assignor"] in ("range", "roundrobin")]


def _partition_counts(vector: dict[str, Any]) -> dict[str, int]:
    """The sizes of the topics in this round.

    The file has a chain's topics as they were after its last round, and topics grow between
    rounds. Every partition of a topic with subscribers is dealt, so the result tells the size.
    """
    counts: dict[str, int] = {}
    for pairs in vector["expected"].values():
        for topic, number in pairs:
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
            owned=tuple(TopicPartition(*pair) for pair in said["owned"]),
            generation=said["generation"],
            rack=said.get("rack"),
            group_instance_id=said.get("instance_id"),
        )
        for member, said in vector["members"].items()
    }


def test_the_vectors_of_both_assignors_are_there() -> None:
    names = [vector["assignor"] for vector in BUILT]
    assert (names.count("range"), names.count("roundrobin")) == (38, 38)


@pytest.mark.parametrize("vector", BUILT, ids=lambda vector: f"{vector['chain']}-{vector['round']}")
def test_assigns_as_kafka_does(vector: dict[str, Any]) -> None:
    (assignor,) = resolve_assignors(vector["assignor"])
    result = assignor.assign(_cluster(vector), _subscriptions(vector))
    expected = {
        member: sorted(TopicPartition(*pair) for pair in pairs)
        for member, pairs in vector["expected"].items()
    }
    assert {member: sorted(partitions) for member, partitions in result.items()} == expected
