"""``VirtualLoop``: programs of asyncio on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kohort import AsyncKafkaConsumer
from kohort.testing import MemoryCluster, VirtualLoop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def test_tasks_wake_in_the_order_of_their_times() -> None:
    seen: list[tuple[str, float]] = []

    async def sleep(name: str, *waits: float) -> None:
        for seconds in waits:
            await asyncio.sleep(seconds)
            seen.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400):
                await asyncio.gather(sleep("a", 3600, 0.5, 7200), sleep("b", 3600.25, 1e9))

    run(main())
    assert seen == [("a", 3600), ("b", 3600.25), ("a", 3600.5), ("a", 10_800.5)]


def test_blocked_loop_is_late_for_its_timers() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        woken = asyncio.ensure_future(asyncio.sleep(1, result=loop.time))
        await asyncio.sleep(0)
        loop.now += 60
        return (await woken)()

    assert run(main()) == 60


def test_silent_member_is_dropped_after_hours_that_pass_at_once() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"orders": 2}) as cluster:
            async with AsyncKafkaConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap_servers,
                connect=cluster.connect,
                group_id="billing",
                auto_offset_reset="earliest",
            ) as consumer:
                await asyncio.sleep(290)  # max_poll_interval_ms is five minutes
                assert cluster.group("billing").is_stable
                await asyncio.sleep(2 * 3600)
                assert cluster.group("billing").state == "Empty"
                cluster.produce("orders", ["in the morning"])
                assert (await anext(consumer)).value == b"in the morning"
        assert asyncio.get_running_loop().time() >= 290 + 2 * 3600

    run(main())
