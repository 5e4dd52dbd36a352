"""Calls of an AsyncKafkaConsumer end in time after its task or its event loop has ended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.consumer.driver import _background_task
from kohort.errors import IllegalStateError, KafkaTimeoutError
from kohort.testing import Cluster, MemoryCluster
from kohort.transport import OneShot
from tests.consumer.kit import apoll_until
from tests.consumer.virtual import MemoryConsumer

TP = TopicPartition("orders", 0)
SOON_S = 90.0
"""Seconds for a call. A call that waits for its own limit raises another error."""
BRIEF = {"request_timeout_ms": 300, "fetch_max_wait_ms": 100}

Call = Callable[[AsyncKafkaConsumer], Any]

AWAITED: dict[str, Call] = {
    "__anext__": lambda c: c.__anext__(),
    "beginning_offsets": lambda c: c.beginning_offsets([TP]),
    "bootstrap": lambda c: c.bootstrap(),
    "commit_async": lambda c: c.commit_async({TP: 1}),
    "commit": lambda c: c.commit({TP: 1}),
    "committed": lambda c: c.committed(TP),
    "end_offsets": lambda c: c.end_offsets([TP]),
    "offsets_for_times": lambda c: c.offsets_for_times({TP: 0}),
    "partitions_for_topic": lambda c: c.partitions_for_topic("orders"),
    "poll": lambda c: c.poll(timeout_ms=300_000),
    "poll_arrow": lambda c: c.poll_arrow(timeout_ms=300_000),
    "poll_batches": lambda c: c.poll_batches(timeout_ms=300_000),
    "position": lambda c: c.position(TP),
    "seek_to_committed": lambda c: c.seek_to_committed(),
    "topic_ids": lambda c: c.topic_ids(["orders"]),
    "topics": lambda c: c.topics(),
    "unsubscribe": lambda c: c.unsubscribe(),
}
"""Methods that need the consumer's task. They raise without it."""

OTHERS: dict[str, Call] = {
    "assign": lambda c: c.assign([TP]),
    "assignment": lambda c: c.assignment(),
    "bootstrap_connected": lambda c: c.bootstrap_connected(),
    "close": lambda c: c.close(),
    "enforce_rebalance": lambda c: c.enforce_rebalance(),
    "explain": lambda c: str(c.explain()),
    "group_metadata": lambda c: c.group_metadata(),
    "health": lambda c: c.health(),
    "highwater": lambda c: c.highwater(TP),
    "known_partitions": lambda c: c.known_partitions("orders"),
    "lag": lambda c: c.lag(),
    "last_poll_timestamp": lambda c: c.last_poll_timestamp(TP),
    "last_stable_offset": lambda c: c.last_stable_offset(TP),
    "metric_samples": lambda c: c.metric_samples(),
    "metrics": lambda c: c.metrics(),
    "pause": lambda c: c.pause(TP),
    "paused": lambda c: c.paused(),
    "positions": lambda c: c.positions(),
    "resume": lambda c: c.resume(TP),
    "seek": lambda c: c.seek(TP, 0),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_end": lambda c: c.seek_to_end(),
    "start": lambda c: c.start(),
    "subscribe": lambda c: c.subscribe(["orders"]),
    "subscription": lambda c: c.subscription(),
    "wakeup": lambda c: c.wakeup(),
}
"""Methods that never need the task. They return, or raise for another reason."""

CALLS = AWAITED | OTHERS


async def call(name: str, consumer: AsyncKafkaConsumer) -> None:
    result = CALLS[name](consumer)
    if isinstance(result, Awaitable):
        await result


def test_every_public_method_is_in_the_tables() -> None:
    found = {
        name
        for name, member in inspect.getmembers(AsyncKafkaConsumer, callable)
        if not name.startswith("_") and name != "from_properties"
    }
    assert found | {"__anext__"} == CALLS.keys()


@pytest.fixture
async def memory() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(topics={"orders": 1}) as cluster:
        yield cluster


async def end_task(consumer: AsyncKafkaConsumer) -> None:
    """End the consumer's background task without the consumer's knowledge."""
    match consumer._driver.background_task:
        case _background_task._AsyncioTask(_task=asyncio.Task() as task):
            task.cancel()
            await asyncio.wait([task])
        case _background_task._TaskGroupTask(_scope=scope, _ended=OneShot() as ended):
            scope.cancel()
            await ended.wait()
        case _:
            raise AssertionError


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
async def test_call_raises_when_the_task_has_ended(memory: MemoryCluster, name: str) -> None:
    async with MemoryConsumer(memory, "orders") as consumer:
        await apoll_until(consumer, consumer.assignment)
        await end_task(consumer)
        with anyio.fail_after(SOON_S):
            if name in AWAITED:
                with pytest.raises(IllegalStateError, match=r"was ended|not running"):
                    await call(name, consumer)
            else:
                with suppress(IllegalStateError):
                    await call(name, consumer)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_call_raises_when_the_event_loop_is_closed(cluster: Cluster, topic: str, name: str) -> None:
    consumer = AsyncKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="closed-loop",
        auto_offset_reset="earliest",
    )
    cluster.produce(topic, [b"x"])

    async def start() -> None:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.start()
        # Every connection is open now. asyncio.run() also cancels tasks that have not begun. anyio
        # does not await the coroutine of such a task.
        await anext(consumer)

    async def elsewhere() -> None:
        with anyio.fail_after(SOON_S):
            if name in AWAITED or name == "start":
                with pytest.raises(IllegalStateError, match="another event loop"):
                    await call(name, consumer)
            else:
                with suppress(IllegalStateError):
                    await call(name, consumer)
        await consumer.close()

    asyncio.run(start())
    asyncio.run(elsewhere())


@pytest.mark.anyio
async def test_position_raises_after_request_timeout_ms(memory: MemoryCluster) -> None:
    async with MemoryConsumer(memory, **BRIEF) as consumer:
        with memory.network_partition():
            consumer.assign([TP])
            with anyio.fail_after(SOON_S), pytest.raises(KafkaTimeoutError):
                await consumer.position(TP)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_stop_ends_when_the_task_ignores_its_cancellation(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_background_task, "STOP_SECONDS", 0.1)
    released = asyncio.Event()
    consumer = MemoryConsumer(memory, "orders")
    run = consumer._driver.engine.run

    async def stubborn(started: Callable[[], None]) -> None:
        try:
            await run(started)
        finally:
            await released.wait()

    monkeypatch.setattr(consumer._driver.engine, "run", stubborn)
    await consumer.start()
    with anyio.fail_after(SOON_S):
        await consumer.close()
    assert "did not end within 0.1 s" in caplog.text
    released.set()
