"""Cancellation at every wait of a consumer: it releases everything and leaves its group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest
import trio

from kohort import TopicPartition
from kohort.broker._memory import MemoryConnection
from kohort.testing import MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

Use = Callable[[MemoryCluster, MemoryConsumer], Coroutine[Any, Any, None]]


class CancelAt:
    """An awaitable that runs a coroutine and cancels the scope at the n-th wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], n: int) -> None:
        self._coroutine = coroutine
        self.left = n
        self.scope = anyio.CancelScope()

    def __await__(self) -> Generator[Any, Any, None]:
        send: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            try:
                waits_for = send(value)
            except StopIteration:
                return
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()
            try:
                value = yield waits_for
                send = self._coroutine.send
            except BaseException as error:
                value, send = error, self._coroutine.throw


class Watched(MemoryConsumer):
    """A consumer that records its connections."""

    def __init__(self, cluster: MemoryCluster, *topics: str, **configs: Any) -> None:
        self.connections: list[MemoryConnection] = []

        async def connect(host: str, port: int) -> MemoryConnection:
            self.connections.append(await cluster.connect(host, port))
            return self.connections[-1]

        super().__init__(cluster, *topics, connect=connect, **configs)

    @property
    def open_connections(self) -> int:
        return sum(not each._outgoing.is_writer_closed for each in self.connections)


async def _poll(_: MemoryCluster, consumer: MemoryConsumer) -> None:
    async with consumer:
        await values(consumer, 2)


async def _commit(_: MemoryCluster, consumer: MemoryConsumer) -> None:
    async with consumer:
        await values(consumer, 2)
        await consumer.commit()
        await consumer.position(TopicPartition("t", 0))
        await consumer.committed(TopicPartition("t", 0))


async def _stop(_: MemoryCluster, consumer: MemoryConsumer) -> None:
    async with consumer:
        await values(consumer, 2)
        await consumer.close()


async def _rebalance(_: MemoryCluster, consumer: MemoryConsumer) -> None:
    async with consumer:
        consumer.enforce_rebalance()
        await consumer.poll(timeout_ms=500)
        await consumer.unsubscribe()


class Slow:
    """A listener whose methods wait for a while."""

    async def on_partitions_revoked(self, _: Any) -> None:
        await anyio.sleep(0.1)

    async def on_partitions_assigned(self, _: Any) -> None:
        await anyio.sleep(0.1)


async def _cancelled_at(n: int, use: Use, listener: Any, living: Callable[[], int]) -> bool:
    """Cancel at the n-th wait. Return False if the coroutine ended before it."""
    tasks, threads = living(), threading.active_count()
    async with MemoryCluster(topics={"t": 2}) as cluster:
        cluster.produce("t", ["a", "b"])
        consumer = Watched(cluster)
        consumer.subscribe(["t"], listener=listener)
        cut = CancelAt(use(cluster, consumer), n)
        with anyio.fail_after(30), cut.scope:
            await cut
        assert consumer.open_connections == 0, f"at {n}"
        assert not cluster.group("g").members, f"at {n}"
        begun = anyio.current_time()
        async with MemoryConsumer(cluster, "t", client_id="next") as heir:
            assert len(heir.assignment()) == 2
            assert anyio.current_time() - begun < 10, (
                f"at {n}: the group waited for a member that has left"
            )
    await anyio.wait_all_tasks_blocked()
    assert living() == tasks, f"at {n}"
    assert threading.active_count() <= threads, f"at {n}"  # an earlier test's may end
    return cut.left <= 0


async def _cancelled_everywhere(use: Use, listener: Any, living: Callable[[], int]) -> None:
    n = 1
    while await _cancelled_at(n, use, listener(), living):
        n += 1
    assert n > 5


def _on_trio() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _on_asyncio() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.parametrize(
    ("use", "listener"),
    [(_poll, Slow), (_commit, Recorder), (_stop, Recorder), (_rebalance, Slow)],
)
def test_a_cancellation_anywhere_leaves_nothing_behind(use: Use, listener: Any) -> None:
    run_virtual(_cancelled_everywhere, use, listener, _on_trio)


@pytest.mark.parametrize("use", [_poll, _commit, _stop, _rebalance])
def test_a_cancellation_anywhere_leaves_nothing_behind_on_asyncio(use: Use) -> None:
    asyncio.run(_cancelled_everywhere(use, Recorder, _on_asyncio))
