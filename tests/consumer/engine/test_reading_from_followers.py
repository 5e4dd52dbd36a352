"""Fetching from the follower in the consumer's rack (KIP-392), and from the leader again."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)
RACKS = ["a", "b", "c"]


def racks() -> MemoryCluster:
    return MemoryCluster(brokers=3, racks=RACKS, topics={"t": 1})


def asked(cluster: MemoryCluster, since: float) -> list[int]:
    """Return the brokers that received fetches since this time."""
    return [each.node_id for each in cluster.requests if each.api == "Fetch" and each.at > since]


async def settle(cluster: MemoryCluster, consumer: MemoryConsumer) -> set[int]:
    """Read for ten seconds. Return the brokers that received fetches in the last five."""
    await _poll_for(consumer, 5)
    half = anyio.current_time()
    await _poll_for(consumer, 5)
    return set(asked(cluster, half))


async def _poll_for(consumer: MemoryConsumer, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while True:
            await consumer.poll(timeout_ms=100)


def follower(cluster: MemoryCluster) -> tuple[int, str]:
    """Return a broker that is not the leader, and its rack."""
    node = cluster.leader("t") % 3 + 1
    return node, RACKS[node - 1]


def consumer_in(cluster: MemoryCluster, rack: str, **more: Any) -> MemoryConsumer:
    return MemoryConsumer(cluster, "t", group_id=None, client_rack=rack, **more)


def test_records_come_from_the_follower_in_the_rack() -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            async with consumer_in(cluster, rack) as consumer:
                cluster.produce("t", ["a", "b"])
                assert await values(consumer, 2) == [b"a", b"b"]
                assert await settle(cluster, consumer) == {node}
                cluster.produce("t", ["c"])
                assert await values(consumer, 1) == [b"c"]
                assert consumer.explain().as_dict()["partitions"]["t-0"]["read_from"] == node

    run_virtual(main)


def test_without_a_rack_the_leader_is_read_from() -> None:
    async def main() -> None:
        async with racks() as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                assert await settle(cluster, consumer) == {cluster.leader("t")}

    run_virtual(main)


def test_the_leader_is_asked_again_once_the_metadata_is_too_old() -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            async with consumer_in(cluster, rack, metadata_max_age_ms=20_000) as consumer:
                assert await settle(cluster, consumer) == {node}
                began = anyio.current_time()
                await _poll_for(consumer, 30)
                assert set(asked(cluster, began)) == {node, cluster.leader("t")}
                assert await settle(cluster, consumer) == {node}

    run_virtual(main)


def test_a_follower_that_dies_is_left_for_the_leader() -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            async with consumer_in(cluster, rack) as consumer:
                await settle(cluster, consumer)
                cluster.kill_broker(node)
                cluster.produce("t", ["a"])
                began = anyio.current_time()
                assert await values(consumer, 1) == [b"a"]
                assert anyio.current_time() - began < 2
                assert await settle(cluster, consumer) == {cluster.leader("t")}
                cluster.start_broker(node)
                await _poll_for(consumer, 30)
                assert await settle(cluster, consumer) == {node}

    run_virtual(main)


@pytest.mark.parametrize(
    "code", ["OFFSET_OUT_OF_RANGE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"]
)
@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_what_a_follower_says_is_not_the_last_word(code: str, policy: str) -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            cluster.produce("t", ["a"])
            async with consumer_in(
                cluster, rack, auto_offset_reset=policy, fetch_max_wait_ms=500
            ) as consumer:
                await consumer.unsubscribe()
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await values(consumer, 1)
                await settle(cluster, consumer)
                with cluster.fail("Fetch", ErrorCode[code], node=node):
                    cluster.produce("t", ["b"])
                    assert await values(consumer, 1) == [b"b"]
                    # The leader would send the consumer back to the follower each time.
                    for number in range(30):
                        cluster.produce("t", [b"%d" % number])
                        began = anyio.current_time()
                        assert await values(consumer, 1) == [b"%d" % number]
                        assert anyio.current_time() - began < 1
                        await _poll_for(consumer, 1)
                    assert len(asked(cluster, began - 20)) < 150
                await _poll_for(consumer, 10)
                assert await settle(cluster, consumer) == {node}

    run_virtual(main)


def test_lagging_follower_returns_its_records_without_a_reset() -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            async with consumer_in(cluster, rack) as consumer:
                await settle(cluster, consumer)
                lag = cluster.lag(T0, node)
                cluster.produce("t", ["a", "b"])
                await _poll_for(consumer, 1)
                lag.stop()
                cluster.produce("t", ["c"])
                consumer.seek(T0, 0)
                assert await values(consumer, 3) == [b"a", b"b", b"c"]

    run_virtual(main)


def test_a_new_leader_is_asked_where_to_read() -> None:
    async def main() -> None:
        async with racks() as cluster:
            node, rack = follower(cluster)
            async with consumer_in(cluster, rack) as consumer:
                await settle(cluster, consumer)
                cluster.move_leader("t", to=node)
                cluster.produce("t", ["a"])
                assert await values(consumer, 1) == [b"a"]
                assert await settle(cluster, consumer) == {node}
                cluster.move_leader("t", to=node % 3 + 1)
                cluster.produce("t", ["b"])
                assert await values(consumer, 1) == [b"b"]
                assert await settle(cluster, consumer) == {node}

    run_virtual(main)
