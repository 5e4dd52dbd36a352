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
from kohort.broker.network._memory import MemoryConnection
from kohort.testing import MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer, values
from tests.support.virtual import run_virtual


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
    """A consumer with a listener that records its connections."""

    def __init__(self, cluster: MemoryCluster, listener: Any, **configs: Any) -> None:
        self.listener = listener
        self.connections: list[MemoryConnection] = []

        async def connect(host: str, port: int) -> MemoryConnection:
            self.connections.append(await cluster.connect(host, port))
            return self.connections[-1]

        super().__init__(cluster, connect=connect, **configs)

    def want(self, topic: str) -> None:
        """Subscribe to a topic with the listener."""
        self.subscribe([topic], listener=self.listener)

    @property
    def open_connections(self) -> int:
        return sum(not each._outgoing.is_writer_closed for each in self.connections)


Use = Callable[[MemoryCluster, Watched], Coroutine[Any, Any, None]]


async def _poll(_: MemoryCluster, consumer: Watched) -> None:
    async with consumer:
        await values(consumer, 2)


async def _commit(_: MemoryCluster, consumer: Watched) -> None:
    async with consumer:
        await values(consumer, 2)
        await consumer.commit()
        await consumer.position(TopicPartition("t", 0))
        await consumer.committed(TopicPartition("t", 0))


async def _stop(_: MemoryCluster, consumer: Watched) -> None:
    async with consumer:
        await values(consumer, 2)
        await consumer.close()


async def _rebalance(cluster: MemoryCluster, consumer: Watched) -> None:
    async with consumer:
        cluster.create_topic("u", 1)
        consumer.want("u")
        await consumer.poll(timeout_ms=500)
        await consumer.unsubscribe()


class Slow:
    """A listener whose methods wait for a while."""

    async def on_partitions_revoked(self, _: Any) -> None:
        await anyio.sleep(0.1)

    async def on_partitions_assigned(self, _: Any) -> None:
        await anyio.sleep(0.1)


async def _cancelled_at(
    n: int, use: Use, listener: Any, living: Callable[[], int], protocol: str
) -> bool:
    """Cancel at the n-th wait. Return False if the coroutine ended before it."""
    tasks, threads = living(), threading.active_count()
    async with MemoryCluster(topics={"t": 2}, consumer_assignment_interval_ms=0) as cluster:
        cluster.produce("t", ["a", "b"])
        consumer = Watched(cluster, listener, group_protocol=protocol)
        consumer.want("t")
        cut = CancelAt(use(cluster, consumer), n)
        with anyio.fail_after(30), cut.scope:
            await cut
        assert consumer.open_connections == 0, f"at {n}"
        assert not cluster.group("g").members, f"at {n}"
        begun = anyio.current_time()
        async with MemoryConsumer(cluster, "t", client_id="next", group_protocol=protocol) as heir:
            assert len(heir.assignment()) == 2
            assert anyio.current_time() - begun < 10, (
                f"at {n}: the group waited for a member that has left"
            )
    await anyio.wait_all_tasks_blocked()
    assert living() == tasks, f"at {n}"
    assert threading.active_count() <= threads, f"at {n}"  # an earlier test's may end
    return cut.left <= 0


async def _cancelled_everywhere(
    use: Use, listener: Any, living: Callable[[], int], protocol: str
) -> None:
    n = 1
    while await _cancelled_at(n, use, listener(), living, protocol):
        n += 1
    assert n > 5


def _on_trio() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _on_asyncio() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.cases(2)  # each cancels at every checkpoint
@PROTOCOLS
@pytest.mark.parametrize(
    ("use", "listener"),
    [(_poll, Slow), (_commit, Recorder), (_stop, Recorder), (_rebalance, Slow)],
)
def test_a_cancellation_anywhere_leaves_nothing_behind(
    use: Use, listener: Any, protocol: str
) -> None:
    run_virtual(_cancelled_everywhere, use, listener, _on_trio, protocol)


@pytest.mark.cases(1)  # each cancels at every checkpoint
@pytest.mark.parametrize("use", [_poll, _commit, _stop, _rebalance])
def test_cancellation_anywhere_leaves_nothing_behind_on_asyncio(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.consumer.engine._engine.LAST_REQUEST_SECONDS", 30.0)
    asyncio.run(_cancelled_everywhere(use, Recorder, _on_asyncio, "auto"))
