"""Scripts that run on both APIs: the sync API in real time, the async API in virtual time.

A script is a coroutine function. On the sync API nothing in it ever suspends.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

import anyio

from kohort import ConsumerRebalanceListener, TopicPartition
from kohort.consumer.driver._callback_runner import run_inline
from kohort.errors import KafkaError
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.awaited import AwaitedConsumer
from tests.support.virtual import run_virtual

Partitions = frozenset[TopicPartition]
Callback = Callable[["Driven", Partitions], Awaitable[None]]

POLL_MS = 20
PATIENCE = 90.0
CLUSTER: dict[str, Any] = {
    "group_settings": {
        "min_session_timeout_ms": 50,
        "consumer_heartbeat_interval_ms": 50,
        "consumer_assignment_interval_ms": 0,
    },
    "auto_create_topics": False,
}
QUICK: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
}
CLASSIC_ONLY = ("heartbeat_interval_ms", "session_timeout_ms", "partition_assignment_strategy")
"""Options that a member of a consumer group does not have."""


class Driven:
    """A consumer of either API, awaited, with a listener that notes its calls."""

    def __init__(self, consumer: Any, callbacks: dict[str, Callback]) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, Partitions]] = []
        """Calls of its listener: name and partitions."""
        self._callbacks = callbacks
        is_sync = isinstance(consumer, AwaitedConsumer)
        self._listener = _SyncListener(self) if is_sync else _AsyncListener(self)

    async def called(self, name: str, partitions: Collection[TopicPartition]) -> None:
        """Note a call of the listener, then run the script's callback."""
        self.calls.append((name, frozenset(partitions)))
        if name in self._callbacks:
            await self._callbacks[name](self, frozenset(partitions))

    def want(self, *topics: str, pattern: str | None = None) -> None:
        """Subscribe again with the same listener."""
        self.consumer.subscribe(topics, pattern=pattern, listener=self._listener)

    async def poll(self) -> list[bytes]:
        """Return the values of the records of one poll."""
        polled = await self.consumer.poll(timeout_ms=POLL_MS)
        return [record.value or b"" for records in polled.values() for record in records]


class _SyncListener(ConsumerRebalanceListener):
    def __init__(self, driven: Driven) -> None:
        self._driven = driven

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        run_inline(self._driven.called("revoked", revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        run_inline(self._driven.called("assigned", assigned))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        run_inline(self._driven.called("lost", lost))


class _AsyncListener(ConsumerRebalanceListener):
    def __init__(self, driven: Driven) -> None:
        self._driven = driven

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._driven.called("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await self._driven.called("assigned", assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._driven.called("lost", lost)


class Stage:
    """The cluster, the clock and the consumers of a script."""

    def __init__(self, cluster: Cluster | MemoryCluster, clock: Callable[[], float]) -> None:
        self.cluster = cluster
        self._clock = clock
        self._stack = AsyncExitStack()

    async def join(
        self,
        *topics: str,
        pattern: str | None = None,
        revoked: Callback | None = None,
        assigned: Callback | None = None,
        lost: Callback | None = None,
        **options: Any,
    ) -> Driven:
        """Return a new subscribed consumer. Its first poll joins the group."""
        given = {"revoked": revoked, "assigned": assigned, "lost": lost}
        callbacks = {name: call for name, call in given.items() if call is not None}
        every = {**QUICK, "bootstrap_servers": self.cluster.bootstrap_servers, **options}
        if every.get("group_protocol") == "consumer":
            every = {name: value for name, value in every.items() if name not in CLASSIC_ONLY}
        elif every.get("group_protocol") == "classic" or not every.keys().isdisjoint(CLASSIC_ONLY):
            every.setdefault("heartbeat_interval_ms", 50)
        consumer: Any
        if isinstance(self.cluster, MemoryCluster):
            consumer = MemoryConsumer(self.cluster, **every)
        else:
            consumer = AwaitedConsumer(**every)
        # A subscription before the start would wait for an assignment, and only polls of the other
        # members complete it.
        await self._stack.enter_async_context(consumer)
        driven = Driven(consumer, callbacks)
        driven.want(*topics, pattern=pattern)
        return driven

    def now(self) -> float:
        """Return the seconds of the clock that the consumers use."""
        return self._clock()

    async def until(self, holds: Callable[[], object], *members: Driven) -> list[bytes]:
        """Poll the members in turn until the predicate holds. Return the values of the records."""
        values: list[bytes] = []
        deadline = self._clock() + PATIENCE
        while not holds():
            assert self._clock() < deadline, [member.calls for member in members]
            for member in members:
                values += await member.poll()
        return values

    async def error(self, kind: type[KafkaError], member: Driven) -> Any:
        """Poll until it raises an error of this type. Return the error."""
        deadline = self._clock() + PATIENCE
        while self._clock() < deadline:
            try:
                await member.poll()
            except kind as error:
                return error
        raise AssertionError(f"no {kind.__name__}")

    async def close(self) -> None:
        """Close all consumers."""
        await self._stack.aclose()


def perform(api: str, script: Callable[[Stage], Awaitable[None]], topics: dict[str, int]) -> None:
    """Run a script on a new cluster."""

    async def on(cluster: Cluster | MemoryCluster, clock: Callable[[], float]) -> None:
        stage = Stage(cluster, clock)
        try:
            await script(stage)
        finally:
            await stage.close()

    async def on_virtual_time() -> None:
        async with MemoryCluster(topics=topics, **CLUSTER) as cluster:
            await on(cluster, anyio.current_time)

    if api == "async":
        run_virtual(on_virtual_time)
    else:
        with Cluster(topics=topics, **CLUSTER) as cluster:
            run_inline(on(cluster, time.monotonic))
