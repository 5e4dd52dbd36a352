"""A consumer with records to return on each call: it yields to other tasks.

The clock is a fake one. The test moves it by hand for each record, so the loop never waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import pass_time, run_virtual_on

LONGEST = 0.05
"""Maximum seconds between two iterations of the event loop."""
STEP = 0.004
"""Seconds of processing for each record."""
COUNT = 600
Way = Callable[[MemoryConsumer], Awaitable[list[int]]]


async def by_iteration(consumer: MemoryConsumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def by_getone(consumer: MemoryConsumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def by_getmany(consumer: MemoryConsumer) -> list[int]:
    polled = await consumer.poll(timeout_ms=1000, max_records=5)
    return [record.offset for part in polled.values() for record in part]


async def by_batches(consumer: MemoryConsumer) -> list[int]:
    batches = await consumer.poll_batches(timeout_ms=1000, max_records=5)
    return [offset for batch in batches for offset in batch.offset]


WAYS = [by_iteration, by_getone, by_getmany, by_batches]


async def watch(turns: list[float]) -> None:
    """Note the time of each iteration of the event loop."""
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
                    pass_time(STEP * len(found))
                    left -= len(found)
                tasks.cancel_scope.cancel()
        assert len(turns) > COUNT * STEP / LONGEST
        assert max(b - a for a, b in pairwise(turns)) <= LONGEST

    run_virtual_on(anyio_backend, main)


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
                            pass_time(STEP * len(offsets))
                    assert anyio.current_time() - began <= 0.5 + LONGEST
        assert found == list(range(COUNT))

    run_virtual_on(anyio_backend, main)


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
                            pass_time(STEP * len(offsets))
                assert 0 < count < COUNT
                assert anyio.current_time() - cancelled <= LONGEST

    run_virtual_on(anyio_backend, main)


def test_a_slow_deserializer_holds_the_loop_up_for_one_record(anyio_backend: str) -> None:
    def deserialize(value: bytes) -> bytes:
        pass_time(STEP)
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

    run_virtual_on(anyio_backend, main)
