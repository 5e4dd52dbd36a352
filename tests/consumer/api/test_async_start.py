"""Start and end of an AsyncKafkaConsumer: by a block, by start() and by the first awaited call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    ConsumerClosedError,
    ErrorCode,
    GroupAuthorizationFailedError,
    IllegalStateError,
    ReentrantCallError,
)
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.kit import PATIENCE, AsyncRecorder, Partitions, apoll_until
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer
from tests.support.awaited import EACH_API_ON_ASYNCIO

pytestmark = pytest.mark.anyio

ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
TP = TopicPartition("orders", 0)


@pytest.fixture
async def memory() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["a", "b", "c"])
        yield cluster


@ASYNCIO
async def test_first_awaited_call_starts_the_consumer(memory: MemoryCluster) -> None:
    consumer = MemoryConsumer(memory, "orders")
    assert await consumer.topics() == {"orders"}
    await apoll_until(consumer, lambda: consumer.positions().get(TP) == 3)
    await consumer.close()
    assert memory.committed("g")[TP].offset == 3


@ASYNCIO
async def test_first_calls_of_two_tasks_start_one_engine(memory: MemoryCluster) -> None:
    consumer = MemoryConsumer(memory, group_id=None)
    found: list[Any] = []

    async def ask() -> None:
        found.append(await consumer.end_offsets([TP]))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert found == 3 * [{TP: 3}]
    await consumer.close()


@ASYNCIO
async def test_cancelled_first_call_can_be_repeated(memory: MemoryCluster) -> None:
    consumer = MemoryConsumer(memory, "orders")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await consumer.topics()
    assert await consumer.topics() == {"orders"}
    await consumer.close()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_first_call_on_trio_raises_outside_of_a_block(memory: MemoryCluster) -> None:
    consumer = MemoryConsumer(memory, "orders")
    for call in (consumer.poll, consumer.topics, consumer.start, consumer.__anext__):
        with pytest.raises(IllegalStateError, match=r"not started: on trio .* 'async with'"):
            await call()
    async with consumer:
        await consumer.poll()
    with pytest.raises(ConsumerClosedError):
        await consumer.poll()


@EACH_API_ON_ASYNCIO
async def test_start_raises_a_fatal_group_error(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    consumer = consumer_class(topic, group_id=group, **options)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with cluster.fail("FindCoordinator", code, times=None):
        with anyio.fail_after(PATIENCE), pytest.raises(GroupAuthorizationFailedError):
            await consumer.start()
    await consumer.start()
    assert consumer.assignment() == {TopicPartition(topic, number) for number in range(2)}
    await consumer.close()


def test_sync_start_waits_for_assignment_and_positions(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    options["auto_offset_reset"] = "latest"
    with KafkaConsumer(topic, group_id=group, **options) as consumer:
        consumer.start()
        assert set(consumer.positions()) == consumer.assignment() != set()
        cluster.produce(topic, [b"after"])
        (records,) = consumer.poll(timeout_ms=10_000).values()
        assert [record.value for record in records] == [b"after"]
        consumer.start()


@ASYNCIO
@PROTOCOLS
@pytest.mark.parametrize("how", ["wait_for", "cancel", "scope"])
async def test_listener_ends_when_its_poll_is_cancelled(
    memory: MemoryCluster, how: str, protocol: str
) -> None:
    released, began, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def wait(partitions: Partitions) -> None:
        began.set()
        await released.wait()
        await consumer.commit({TP: 2})
        ended.set()

    memory.create_topic("others", 1)
    listener = AsyncRecorder(revoked=wait)
    consumer = MemoryConsumer(
        memory, group_protocol=protocol, rebalance_without_poll="never", enable_auto_commit=False
    )
    consumer.subscribe(["orders"], listener=listener)
    await apoll_until(consumer, lambda: consumer.positions().get(TP) == 3)  # no records are left
    consumer.subscribe(["others"], listener=listener)
    poll = asyncio.create_task(consumer.poll(timeout_ms=60_000))
    with anyio.fail_after(PATIENCE):
        if how == "wait_for":
            while not began.is_set():
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(timeout_ms=60_000), 0.05)
        else:
            await began.wait()
        if how == "scope":
            with anyio.move_on_after(0.05):
                await consumer.poll(timeout_ms=60_000)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert not ended.is_set()
        released.set()
        await ended.wait()
        await apoll_until(consumer, lambda: listener.names.count("assigned") == 2)
    assert listener.names == ["assigned", "revoked", "assigned"]
    assert memory.committed("g")[TP].offset == 2
    listener.hooks = {}
    await consumer.close()


@ASYNCIO
async def test_close_in_a_listener_ends_after_its_poll_is_cancelled(
    memory: MemoryCluster,
) -> None:
    async def close(partitions: Partitions) -> None:
        await consumer.close()
        poll.cancel()
        await anyio.sleep(0.05)

    listener = AsyncRecorder(assigned=close)
    consumer = MemoryConsumer(memory, rebalance_without_poll="never")
    consumer.subscribe(["orders"], listener=listener)
    poll = asyncio.create_task(consumer.poll(timeout_ms=60_000))
    with pytest.raises(asyncio.CancelledError):
        await poll
    await memory.wait_until(lambda: consumer._driver.life.is_closed)
    assert listener.names == ["assigned", "revoked"]
    assert not memory.group("g").members


async def test_unsubscribe_raises_in_a_listener(memory: MemoryCluster) -> None:
    refused: list[str] = []

    async def leave(partitions: Partitions) -> None:
        with pytest.raises(ReentrantCallError) as raised:
            await consumer.unsubscribe()
        refused.append(str(raised.value).split()[0])

    consumer = MemoryConsumer(memory)
    consumer.subscribe(["orders"], listener=AsyncRecorder(assigned=leave))
    async with consumer:
        await apoll_until(consumer, lambda: refused)
    assert refused == ["unsubscribe()"]


async def test_commit_async_commits_and_calls_back(memory: MemoryCluster) -> None:
    called: list[Any] = []

    def note(offsets: Any, error: Any) -> None:
        called.append((offsets, error))

    async with MemoryConsumer(memory, "orders", enable_auto_commit=False) as consumer:
        future = consumer.commit_async({TP: 2}, note)
        with pytest.raises(IllegalStateError, match="not ended"):
            future.result()
        await future
        assert future.done()
        assert future.exception() is None
        assert memory.committed("g")[TP].offset == 2
        assert called == []
        await consumer.poll()
        assert [(offsets[TP].offset, error) for offsets, error in called] == [(2, None)]
        with memory.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED):
            failed = consumer.commit_async({TP: 3}, note)
            with pytest.raises(GroupAuthorizationFailedError):
                await failed
        await consumer.commit({TP: 1})
        assert isinstance(called[1][1], GroupAuthorizationFailedError)
        last = consumer.commit_async({TP: 3}, note)
    assert last.done()
    assert memory.committed("g")[TP].offset == 3
    assert len(called) == 3
