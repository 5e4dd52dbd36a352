"""User-defined assignors by name, class and instance, on both APIs."""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    CooperativeStickyAssignor,
    PartitionAssignor,
    Subscription,
)
from kohort.coordinator_client.classic._embedded_protocol import read_subscription
from kohort.errors import AssignorError
from kohort.protocol.messages import JoinGroupRequest
from kohort.testing import Cluster
from kohort.types import ConsumerGroupMetadata
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import apoll_until, poll_error, poll_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_assignor.py"
HASHES = Path(__file__).parents[2] / "data" / "hash_vectors.json"


class Mine(PartitionAssignor):
    """An assignor that gives all partitions to the member with the smallest user data."""

    name: ClassVar[str] = "mine"

    def __init__(self, word: bytes = b"?") -> None:
        self.word = word
        self.heard: list[bytes] = []
        self.given: list[Assignment] = []
        self.metadata: list[ConsumerGroupMetadata] = []
        self.threads: set[threading.Thread] = set()
        self.tasks: set[int] = set()

    def note(self) -> None:
        self.threads.add(threading.current_thread())

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        self.note()
        return self.word

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        self.note()
        words = {member: said.user_data or b"" for member, said in subscriptions.items()}
        self.heard = sorted(words.values())
        smallest = min(words, key=words.__getitem__)
        everything = [
            TopicPartition(topic, number)
            for topic in cluster.topics()
            for number in range(cluster.partitions[topic])
        ]
        return {
            member: Assignment(tuple(everything) if member == smallest else (), b"for " + word)
            for member, word in words.items()
        }

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self.note()
        self.given.append(assignment)
        self.metadata.append(metadata)


def _last_join(cluster: Cluster) -> JoinGroupRequest:
    *_, last = (r.message for r in cluster.requests if isinstance(r.message, JoinGroupRequest))
    return last


def test_custom_assignor_with_user_data_runs_in_callers_thread(
    make: MakeConsumer, topic: str, group: str
) -> None:
    mine, theirs = Mine(b"a"), Mine(b"b")
    one = make(topic, group_id=group, partition_assignment_strategy=[mine])
    poll_until(one, one.assignment)
    two = make(topic, group_id=group, partition_assignment_strategy=theirs)

    def both() -> bool:
        one.poll(timeout_ms=20)
        return bool(theirs.given) and len(mine.given) > 1

    poll_until(two, both)
    both_partitions = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert mine.given[-1] == Assignment(both_partitions, b"for a")
    assert theirs.given == [Assignment((), b"for b")]
    assert mine.heard == [b"a", b"b"]
    assert theirs.heard == []
    assert mine.metadata[-1].generation_id == theirs.metadata[-1].generation_id
    assert mine.metadata[-1].group_id == group
    assert mine.metadata[-1].member_id != theirs.metadata[-1].member_id
    assert mine.threads == theirs.threads == {threading.current_thread()}


@pytest.mark.anyio
async def test_an_assignor_of_ones_own_in_the_callers_task(
    options: dict[str, Any], topic: str, group: str
) -> None:
    class Watched(Mine):
        def note(self) -> None:
            self.tasks.add(anyio.get_current_task().id)

    mine = Watched(b"a")
    async with AsyncKafkaConsumer(
        topic,
        group_id=group,
        partition_assignment_strategy=[mine],
        rebalance_without_poll="never",
        **options,
    ) as consumer:
        await apoll_until(consumer, consumer.assignment)
        assert len(mine.given) == 1
        assert mine.tasks == {anyio.get_current_task().id}


def test_a_class_will_do_and_several_are_offered_in_order(
    make: MakeConsumer, cluster: Cluster, topic: str, group: str
) -> None:
    strategy = [Mine, "range", CooperativeStickyAssignor]
    consumer = make(topic, group_id=group, partition_assignment_strategy=strategy)
    poll_until(consumer, consumer.assignment)
    join = _last_join(cluster)
    assert [offer.name for offer in join.protocols] == ["mine", "range", "cooperative-sticky"]
    assert cluster.group(group).protocol == "mine"


def test_default_assignors_are_those_of_java_then_round_robin(
    make: MakeConsumer, cluster: Cluster, topic: str, group: str
) -> None:
    consumer = make(topic, group_id=group, group_protocol="classic")
    poll_until(consumer, consumer.assignment)
    join = _last_join(cluster)
    assert [offer.name for offer in join.protocols] == ["range", "cooperative-sticky", "roundrobin"]
    assert cluster.group(group).protocol == "range"


def test_cooperative_assignor_must_not_move_a_partition_at_once(
    make: MakeConsumer, topic: str, group: str
) -> None:
    class Rash(CooperativeStickyAssignor):
        name: ClassVar[str] = "rash"

        def assign(
            self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
        ) -> Mapping[str, list[TopicPartition]]:
            everything = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            newest = next((m for m, s in subscriptions.items() if not s.owned), min(subscriptions))
            return {newest: everything}

    one = make(topic, group_id=group, partition_assignment_strategy=Rash)
    poll_until(one, one.assignment)
    two = make(topic, group_id=group, partition_assignment_strategy=Rash)

    def join_and_look() -> bool:
        two.poll(timeout_ms=20)
        return False

    with pytest.raises(
        AssignorError, match=r"moved .* in one rebalance. A cooperative assignor must leave it out"
    ):
        poll_until(one, join_and_look)


def test_the_example_deals_by_the_hash_of_the_partitions_names() -> None:
    example = runpy.run_path(str(EXAMPLE))
    for vector in json.loads(HASHES.read_text())["coordinator"]:
        if "group" in vector and vector["group"].isascii():
            assert example["string_hash"](vector["group"]) == vector["hash"], vector
    assignor = example["HashOrderedRoundRobin"]()
    # "t-8" 112729, "t-9" 112730, "t-10" 3494568, "t-11" 3494569. The others are between.
    members = {"b": Subscription(("t",), b"1"), "a": Subscription(("t",), b"2")}
    assigned = assignor.assign(ClusterTopics({"t": 12}), members)
    row = [TopicPartition("t", number) for number in [*range(10), 10, 11]]
    assert list(assigned["b"].partitions) == row[2::3]
    assert json.loads(assigned["a"].user_data) == [
        [list(tp) for tp in row[0::3]],
        [list(tp) for tp in row[1::3]],
    ]
    uneven = {"a": Subscription(("t",), b"1"), "b": Subscription(("u",), b"1")}
    assigned = assignor.assign(ClusterTopics({"t": 2, "u": 1}), uneven)
    assert {member: len(given.partitions) for member, given in assigned.items()} == {"a": 2, "b": 1}


def test_an_assignor_that_raises_comes_out_of_poll(
    make: MakeConsumer, topic: str, group: str
) -> None:
    class Broken(Mine):
        def assign(
            self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
        ) -> Assignments:
            raise ValueError("no idea")

    consumer = make(topic, group_id=group, partition_assignment_strategy=Broken)
    assert "no idea" in str(poll_error(consumer, AssignorError))


def test_the_rack_and_what_is_owned_are_told_to_the_leader(
    make: MakeConsumer, cluster: Cluster, topic: str, group: str
) -> None:
    consumer = make(
        topic,
        group_id=group,
        client_rack="eu-1a",
        partition_assignment_strategy="cooperative-sticky",
    )
    poll_until(consumer, consumer.assignment)
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: cluster.group(group).generation == 2)
    said = read_subscription(_last_join(cluster).protocols[0].metadata)
    both = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert (said.rack, said.owned, said.generation) == ("eu-1a", both, 1)
