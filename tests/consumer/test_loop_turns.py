"""A consumer that always has records to return leaves the event loop time for other tasks.

The clock is a fake one. The test moves it by hand for each record, so the loop never waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, cast

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint
from trio.testing import MockClock

from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

LONGEST = 0.05
"""Seconds between two turns of the event loop, at most."""
STEP = 0.004
"""Seconds of processing for each record."""
COUNT = 600
Way = Callable[[MemoryConsumer], Awaitable[list[int]]]

_loop: contextvars.ContextVar[SteppedLoop] = contextvars.ContextVar("loop")


class _Selector(selectors.DefaultSelector):
    """Moves the clock forward instead of waiting; nothing here waits for a socket."""

    loop: SteppedLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop of asyncio on a virtual clock, which jumps when all tasks wait."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def spend(seconds: float) -> None:
    """Block the event loop for so long, on its own clock."""
    loop = _loop.get(None)
    if loop is not None:
        loop.now += seconds
    else:
        cast(MockClock, trio.lowlevel.current_clock()).jump(seconds)


def run(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    if backend == "trio":
        run_virtual(main)
        return

    async def on_asyncio() -> None:
        _loop.set(cast(SteppedLoop, asyncio.get_running_loop()))
        await main()

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(on_asyncio())


async def by_iteration(consumer: MemoryConsumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def by_getone(consumer: MemoryConsumer) -> list[int]:
    return [(await consumer.getone()).offset]


async def by_getmany(consumer: MemoryConsumer) -> list[int]:
    polled = await consumer.getmany(timeout_ms=1000, max_records=5)
    return [record.offset for part in polled.values() for record in part]


async def by_batches(consumer: MemoryConsumer) -> list[int]:
    batches = await consumer.poll_batches(timeout_ms=1000, max_records=5)
    return [offset for batch in batches for offset in batch.offsets]


WAYS = [by_iteration, by_getone, by_getmany, by_batches]


async def watch(turns: list[float]) -> None:
    """Note the time of each turn of the event loop."""
    while True:
        turns.append(anyio.current_time())
        await checkpoint()


@pytest.fixture(params=[1, 60], ids=["one partition", "60 partitions"])
def partitions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("way", WAYS)
def test_reading_gives_the_loop_a_turn_every_50_ms(
    anyio_backend: str, way: Way, partitions: int
) -> None:
    async def main() -> None:
        turns: list[float] = []
        async with MemoryCluster(topics={"t": partitions}) as cluster:
            cluster.produce("t", ["x"] * COUNT)
            async with MemoryConsumer(cluster, "t") as consumer, anyio.create_task_group() as tasks:
                left = COUNT - len(await way(consumer))
                tasks.start_soon(watch, turns)
                while left:
                    found = await way(consumer)
                    spend(STEP * len(found))
                    left -= len(found)
                tasks.cancel_scope.cancel()
        assert len(turns) > COUNT * STEP / LONGEST
        assert max(b - a for a, b in pairwise(turns)) <= LONGEST

    run(anyio_backend, main)


@pytest.mark.parametrize("way", WAYS)
def test_a_time_out_ends_reading_in_time_and_loses_nothing(anyio_backend: str, way: Way) -> None:
    async def main() -> None:
        found: list[int] = []
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["x"] * COUNT)
            async with MemoryConsumer(cluster, "t") as consumer:
                while len(found) < COUNT:
                    began = anyio.current_time()
                    with anyio.move_on_after(0.5):
                        while len(found) < COUNT:
                            offsets = await way(consumer)
                            found += offsets
                            spend(STEP * len(offsets))
                    assert anyio.current_time() - began <= 0.5 + LONGEST
        assert found == list(range(COUNT))

    run(anyio_backend, main)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_task_stops_reading_in_time(anyio_backend: str, way: Way) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["x"] * COUNT)
            async with MemoryConsumer(cluster, "t") as consumer:
                cancelled = 0.0

                async def cancel(scope: anyio.CancelScope) -> None:
                    nonlocal cancelled
                    scope.cancel()
                    cancelled = anyio.current_time()

                async with anyio.create_task_group() as tasks:
                    scope = anyio.CancelScope()
                    with scope:
                        count = 0
                        while count < COUNT:
                            offsets = await way(consumer)
                            if not count:
                                tasks.start_soon(cancel, scope)
                            count += len(offsets)
                            spend(STEP * len(offsets))
                assert 0 < count < COUNT
                assert anyio.current_time() - cancelled <= LONGEST

    run(anyio_backend, main)


def test_a_slow_deserializer_holds_the_loop_up_for_one_record(anyio_backend: str) -> None:
    def deserialize(value: bytes) -> bytes:
        spend(STEP)
        return value

    async def main() -> None:
        turns: list[float] = []
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["x"] * COUNT)
            consumer: Any = MemoryConsumer(cluster, "t", value_deserializer=deserialize)
            async with consumer, anyio.create_task_group() as tasks:
                tasks.start_soon(watch, turns)
                async for record in consumer:
                    if record.offset == COUNT - 1:
                        break
                tasks.cancel_scope.cancel()
        assert max(b - a for a, b in pairwise(turns)) <= LONGEST

    run(anyio_backend, main)
