"""Followers that a leader names: followed, left when they fail, and never a cause of a spin."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.fetcher._leaders import LEADER_ONLY_SECONDS, Replicas
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.transport import Leader, PartitionMetadata, TopicMetadata
from tests.fetcher.fake import FakeCluster, consuming
from tests.fetcher.making import T0, batch, owning

LEADER = Leader(1, 5)

virtual_time = pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
"""Mark of tests that depend on durations."""


class TestChoosing:
    def test_the_leader_is_read_from_until_it_names_a_follower(self) -> None:
        replicas = Replicas(300.0)
        assert replicas.find(T0, LEADER, 10.0) == 1
        assert replicas.chosen_node(T0) is None
        replicas.read_from(T0, 2, LEADER, 10.0)
        assert replicas.find(T0, LEADER, 309.0) == 2
        assert replicas.chosen_node(T0) == 2
        assert not replicas.is_kept_on_leader(T0)

    def test_what_a_leader_said_grows_old(self) -> None:
        replicas = Replicas(300.0)
        replicas.read_from(T0, 2, LEADER, 10.0)
        assert replicas.find(T0, LEADER, 310.0) == 1
        assert replicas.chosen_node(T0) is None

    @pytest.mark.parametrize("new", [Leader(3, 6), Leader(1, 6)])
    def test_what_a_leader_said_ends_with_its_leadership(self, new: Leader) -> None:
        replicas = Replicas(300.0)
        replicas.read_from(T0, 2, LEADER, 10.0)
        assert replicas.find(T0, new, 11.0) == new.node

    def test_a_follower_that_fails_is_left_for_a_while(self) -> None:
        replicas = Replicas(300.0)
        replicas.read_from(T0, 2, LEADER, 10.0)
        assert not replicas.leave_follower(T0, 1, 11.0)
        assert replicas.leave_follower(T0, 2, 11.0)
        assert replicas.is_kept_on_leader(T0)
        assert replicas.find(T0, LEADER, 11.0 + LEADER_ONLY_SECONDS - 0.1) == 1
        assert replicas.is_kept_on_leader(T0)
        assert not replicas.leave_follower(T0, 1, 12.0), "the leader is no follower"
        assert replicas.find(T0, LEADER, 11.0 + LEADER_ONLY_SECONDS) == 1
        assert not replicas.is_kept_on_leader(T0)

    def test_partitions_that_are_gone_are_forgotten(self) -> None:
        replicas = Replicas(300.0)
        replicas.read_from(T0, 2, LEADER, 10.0)
        replicas.keep_only([T0])
        assert replicas.chosen_node(T0) == 2
        replicas.keep_only([])
        assert replicas.chosen_node(T0) is None


def replicated() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add(T0)
    partition = PartitionMetadata(1, 5, replicas=(1, 2, 3), offline=(3,))
    cluster.topics["t"] = TopicMetadata("t", partitions={0: partition})
    return cluster


def naming(cluster: FakeCluster, follower: int, *, at: int | None = None) -> list[tuple[int, str]]:
    """Let every broker, or only ``at``, name the follower for any rack. Return the requests."""
    asked: list[tuple[int, str]] = []

    def answer(node: int, request: Any) -> FetchResponse | None:
        assert isinstance(request, FetchRequest)
        asked.append((node, request.rack_id))
        cluster.scripts.append(answer)
        if at not in (None, node):
            return None
        data = FetchResponse.PartitionData(
            partition_index=0, high_watermark=2, preferred_read_replica=follower, records=b""
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])
        return FetchResponse(responses=[topic])

    cluster.scripts.append(answer)
    return asked


@virtual_time
@pytest.mark.anyio
@pytest.mark.parametrize("follower", [1, 2, 3, 9], ids=["itself", "known", "offline", "unknown"])
async def test_circular_preferred_replicas_cause_no_busy_loop(
    follower: int,
) -> None:
    cluster = replicated()
    asked = naming(cluster, follower)
    async with consuming(cluster, owning(T0), rack="r") as consumer:
        assert await consumer.poll(timeout=10) == {}
        assert len(asked) < 400, "40 ms is the longest back-off"
        cluster.scripts.clear()
        cluster.produce(T0, 2, batch(0, 2))
        assert await consumer.poll() == {T0: [0, 1]}


@virtual_time
@pytest.mark.anyio
async def test_leader_gets_no_rack_while_a_follower_is_avoided() -> None:
    cluster = replicated()
    asked = naming(cluster, 2, at=1)
    async with consuming(cluster, owning(T0), rack="r") as consumer:
        await consumer.poll(timeout=0.1)
        # The fake broker 2 is not the leader, so it fails.
        assert asked[:2] == [(1, "r"), (2, "r")]
        assert set(asked[2:]) == {(1, "")}
