"""Offsets by ``auto_offset_reset`` that are requested before partitions are assigned."""

from __future__ import annotations

from collections.abc import Collection

import anyio
import pytest

from kohort.errors import ErrorCode
from kohort.fetcher._first_offsets import KEPT_SECONDS
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.types import TopicPartition
from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import T0, T1, batch

pytestmark = pytest.mark.anyio


def assign(consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
    """Assign partitions, for which the group has no committed offsets."""
    subscription = consumer.subscription
    subscription.assign_from_group(frozenset(partitions))
    for tp, epoch in subscription.awaiting_position().items():
        subscription.reset_if_unknown(tp, epoch=epoch)
    consumer.fetcher.wake()


def cluster_of_two() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add(T0, 1).append(2, batch(0, 2))
    cluster.add(T1, 2).append(2, batch(0, 2))
    return cluster


def subscribed(strategy: OffsetReset = OffsetReset.EARLIEST) -> SubscriptionState:
    subscription = SubscriptionState(strategy)
    subscription.subscribe(["t"])
    return subscription


async def test_each_leader_is_asked_once() -> None:
    cluster = cluster_of_two()
    async with consuming(cluster, subscribed()) as consumer:
        consumer.fetcher.expect([T0, T1])
        assign(consumer, [T0, T1])  # while the requests are in flight
        assert await consumer.read(4) == {T0: [0, 1], T1: [0, 1]}
    assert sorted(node for node, _ in cluster.lookups) == [1, 2]


@pytest.mark.parametrize("waited", [0.0, KEPT_SECONDS - 1, KEPT_SECONDS + 1])
async def test_old_offset_is_requested_again(waited: float) -> None:
    cluster = cluster_of_two()
    async with consuming(cluster, subscribed(OffsetReset.LATEST)) as consumer:
        consumer.fetcher.expect([T0])
        await anyio.wait_all_tasks_blocked()
        cluster.produce(T0, 4, batch(2, 2))
        await anyio.sleep(waited)
        assign(consumer, [T0])
        await anyio.wait_all_tasks_blocked()
        cluster.produce(T0, 5, batch(4, 1))
        found = await consumer.poll()
    assert found[T0][0] == (4 if waited > KEPT_SECONDS else 2)
    assert len(cluster.lookups) == (2 if waited > KEPT_SECONDS else 1)


async def test_failed_look_up_is_repeated_when_it_is_needed() -> None:
    cluster = cluster_of_two()
    cluster.logs[T0].codes.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with consuming(cluster, subscribed()) as consumer:
        consumer.fetcher.expect([T0])
        await anyio.wait_all_tasks_blocked()
        assert len(cluster.lookups) == 1
        assign(consumer, [T0])
        assert await consumer.read(2) == {T0: [0, 1]}
    assert len(cluster.lookups) == 2


async def test_offset_of_a_partition_of_others_is_dropped() -> None:
    cluster = cluster_of_two()
    async with consuming(cluster, subscribed(OffsetReset.LATEST)) as consumer:
        consumer.fetcher.expect([T0])
        await anyio.wait_all_tasks_blocked()
        assign(consumer, [T1])
        await anyio.wait_all_tasks_blocked()
        cluster.produce(T0, 4, batch(2, 2))
        assign(consumer, [T0])
        await anyio.wait_all_tasks_blocked()
        cluster.produce(T0, 5, batch(4, 1))
        assert (await consumer.poll())[T0] == [4]


async def test_nothing_is_requested_where_no_offset_is_chosen() -> None:
    cluster = cluster_of_two()
    async with consuming(cluster, subscribed(OffsetReset.NONE)) as consumer:
        consumer.fetcher.expect([T0, TopicPartition("unknown", 0)])
        await anyio.wait_all_tasks_blocked()
    assert not cluster.lookups
