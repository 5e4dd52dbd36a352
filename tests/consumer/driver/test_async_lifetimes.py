"""Lifetimes of an AsyncKafkaConsumer: failed starts, stops in any order, changed event loops."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.errors import ConsumerClosedError, IllegalStateError, NoBrokersAvailable
from kohort.testing import MemoryCluster
from kohort.transport import ByteConnection
from tests.consumer.kit import PATIENCE, AsyncRecorder, Partitions, Recorder, aread, values

pytestmark = pytest.mark.anyio

ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
TP = TopicPartition("orders", 0)


class Net:
    """A cluster in memory that refuses connections until :attr:`up` is set."""

    def __init__(self, cluster: MemoryCluster, protocol: str) -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.up = False

    async def connect(self, host: str, port: int) -> ByteConnection:
        if not self.up:
            raise ConnectionRefusedError("not yet")
        return await self.cluster.connect(host, port)

    def consumer(self, *topics: str, **options: Any) -> AsyncKafkaConsumer:
        return AsyncKafkaConsumer(
            *topics,
            bootstrap_servers=self.cluster.bootstrap_servers,
            connect=self.connect,
            **{
                "bootstrap_timeout_ms": 30_000 if self.up else 100,
                "auto_offset_reset": "earliest",
                "reconnect_backoff_ms": 5,
                "group_protocol": self.protocol,
                **options,
            },
        )


@pytest.fixture(params=["classic", "consumer"])
async def net(request: pytest.FixtureRequest) -> AsyncIterator[Net]:
    async with MemoryCluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["a", "b", "c"])
        yield Net(cluster, request.param)


async def again_and_again(start: Callable[[], Awaitable[None]]) -> None:
    """Call until it works. On a busy machine even a cluster in memory may be late."""
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                return await start()
            except NoBrokersAvailable:
                pass


@ASYNCIO
async def test_start_may_be_called_again_when_no_broker_was_there(net: Net) -> None:
    consumer, listener = net.consumer(group_id="shop"), Recorder()
    consumer.subscribe(["orders"], listener=listener)
    for _ in range(2):
        with pytest.raises(NoBrokersAvailable):
            await consumer.start()
        assert "not started" in repr(consumer)
    net.up = True
    await again_and_again(consumer.start)
    assert values(await aread(consumer, 3)) == [b"a", b"b", b"c"]
    await consumer.close()
    assert listener.names == ["assigned", "revoked"]
    assert net.cluster.committed("shop")[TP].offset == 3


async def test_a_block_may_be_entered_again_when_no_broker_was_there(net: Net) -> None:
    consumer = net.consumer()
    consumer.assign([TP])
    consumer.seek(TP, 1)
    with pytest.raises(NoBrokersAvailable):
        async with consumer:
            raise AssertionError
    assert consumer.assignment() == {TP}
    net.up = True
    read: list[Any] = []

    async def block() -> None:
        async with consumer:
            read.extend(values(await aread(consumer, 2)))

    await again_and_again(block)
    assert read == [b"b", b"c"]


@pytest.mark.cases(2)  # each waits for a timeout
@pytest.mark.parametrize(
    ("net", "api"),
    [
        ("classic", "Metadata"),
        ("classic", "JoinGroup"),
        ("classic", "SyncGroup"),
        ("consumer", "Metadata"),
        ("consumer", "ConsumerGroupHeartbeat"),
    ],
    indirect=["net"],
)
async def test_a_start_that_was_cancelled_may_be_made_again(net: Net, api: str) -> None:
    net.up = True
    consumer = net.consumer("orders", group_id="shop", bootstrap_timeout_ms=60_000)
    with net.cluster.hang(api) as fault:
        async with anyio.create_task_group() as tasks:

            async def start() -> None:
                async with consumer:
                    raise AssertionError

            tasks.start_soon(start)
            await net.cluster.wait_until(lambda: fault.hits)
            tasks.cancel_scope.cancel()
        assert consumer.assignment() == set()
    async with consumer:
        assert values(await aread(consumer, 3)) == [b"a", b"b", b"c"]
        (member,) = net.cluster.group("shop").members
        assert member.member_id == consumer.group_metadata().member_id


@ASYNCIO
async def test_a_start_that_another_task_stops_is_over(net: Net) -> None:
    consumer = net.consumer("orders", group_id="shop")
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            with pytest.raises((ConsumerClosedError, NoBrokersAvailable)):
                await consumer.start()

        tasks.start_soon(start)
        await anyio.wait_all_tasks_blocked()
        await consumer.close()
    with pytest.raises(ConsumerClosedError):
        await consumer.start()


@ASYNCIO
async def test_stop_after_a_start_in_vain_closes(net: Net) -> None:
    closed: list[int] = []

    class Deserializer:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
            return data

        def close(self) -> None:
            closed.append(1)

    consumer = net.consumer("orders", value_deserializer=Deserializer())
    with pytest.raises(NoBrokersAvailable):
        await consumer.start()
    assert closed == []
    await consumer.close()
    assert closed == [1]
    with pytest.raises(ConsumerClosedError):
        await consumer.start()


@ASYNCIO
async def test_consumers_stop_in_any_order_from_any_task(net: Net) -> None:
    net.up = True
    first, second = (net.consumer("orders", group_id=f"shop-{n}") for n in range(2))
    await first.start()
    await asyncio.create_task(second.start())
    assert len(await aread(first, 3)) == 3
    await asyncio.create_task(first.close())
    assert len(await aread(second, 3)) == 3
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.close)
        tasks.start_soon(first.close)
        tasks.start_soon(second.close)
    assert not net.cluster.group("shop-0").members
    assert not net.cluster.group("shop-1").members


async def test_the_outer_of_two_blocks_may_stop_first(net: Net) -> None:
    net.up = True
    async with net.consumer("orders", group_id="shop-0") as outer:
        async with net.consumer("orders", group_id="shop-1") as inner:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outer.close)
            assert not net.cluster.group("shop-0").members
            assert len(await aread(inner, 3)) == 3
        with pytest.raises(ConsumerClosedError):
            await inner.poll()


def test_another_event_loop_is_refused_while_the_first_one_lives(
    topic: str, options: dict[str, Any]
) -> None:
    async def main() -> None:
        consumer = AsyncKafkaConsumer(topic, **options)
        await consumer.start()

        async def elsewhere() -> None:
            for call in (consumer.poll, consumer.__anext__, consumer.start, consumer.close):
                with pytest.raises(IllegalStateError, match="started in another event loop"):
                    await call()

        await anyio.to_thread.run_sync(asyncio.run, elsewhere())
        assert await consumer.poll() == {}
        await consumer.close()

    asyncio.run(main())


def test_consumer_of_an_ended_event_loop_raises_and_can_close(
    options: dict[str, Any],
) -> None:
    consumer = AsyncKafkaConsumer(group_id="nobody", **options)
    asyncio.run(consumer.start())

    async def second() -> None:
        calls = (consumer.poll, consumer.commit, consumer.start, consumer.unsubscribe)
        for call in calls:
            with pytest.raises(IllegalStateError, match="create a new consumer here"):
                await call()
        await consumer.close()
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()

    asyncio.run(second())


def test_one_that_nobody_stops_warns_how_to_stop_it(options: dict[str, Any]) -> None:
    async def main() -> None:
        consumer = AsyncKafkaConsumer(**options)
        await consumer.start()
        with pytest.warns(ResourceWarning, match=r"AsyncKafkaConsumer was not closed: await close"):
            del consumer
            gc.collect()

    asyncio.run(main())


def test_abandoned_consumer_ends_its_task_if_warnings_are_errors(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: raised.append(hook.exc_value))

    async def main() -> None:
        consumer = AsyncKafkaConsumer(**options)
        await consumer.start()
        (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "kohort"]
        del consumer
        gc.collect()
        async with asyncio.timeout(60):
            await asyncio.wait([task])

    asyncio.run(main())
    assert [type(each) for each in raised] == [ResourceWarning]


def test_waiting_iteration_keeps_the_consumer_alive(options: dict[str, Any]) -> None:
    async def main() -> None:
        consumer = AsyncKafkaConsumer(**options)
        await consumer.start()
        task = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        kept = weakref.ref(consumer)
        del consumer
        gc.collect()
        found = kept()
        assert found is not None
        await found.close()
        with pytest.raises(StopAsyncIteration):
            await task

    asyncio.run(main())


def test_running_listener_keeps_the_consumer_alive(options: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def wait(_: Partitions) -> None:
            begun.set()
            await over.wait()

        consumer = AsyncKafkaConsumer(group_id=topic, **options)
        consumer.subscribe([topic], listener=AsyncRecorder(assigned=wait))
        poll = asyncio.ensure_future(consumer.poll(timeout_ms=1000 * PATIENCE))
        await begun.wait()
        poll.cancel()
        await asyncio.wait([poll])
        kept = weakref.ref(consumer)
        del consumer, poll
        gc.collect()
        found = kept()
        assert found is not None
        over.set()
        await found.close()

    asyncio.run(main())
