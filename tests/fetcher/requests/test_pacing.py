"""The intervals between fetches while few records arrive at a time, on a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort.fetcher.requests._connections import LONG_POLL_AFTER
from kohort.fetcher.requests._pacing import LEAST_SHARE, PACED_BYTES, WORK_FACTOR
from kohort.subscription import SubscriptionState
from tests.fetcher.fake import Consumer, FakeCluster
from tests.fetcher.making import T0, T1, batch, owning
from tests.support.virtual import pass_time, run_virtual_on

PACE = 10.0
"""Seconds of ``fetch_pace_ms`` in these tests."""
LEAST = PACE / LEAST_SHARE
OPTIONS = {"fetch_pace_ms": PACE * 1000, "fetch_max_wait_ms": 20_000}
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class TimedCluster(FakeCluster):
    """A cluster that notes the time and the partitions of each fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, set[int]]] = []

    async def request_leased(self, message: Any, **options: Any) -> Any:
        partitions = {each.partition for topic in message.topics for each in topic.partitions}
        self.sent.append((anyio.current_time(), partitions))
        return await super().request_leased(message, **options)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


class Paced:
    """A running fetcher with two partitions, and records on request."""

    def __init__(self, subscription: SubscriptionState | None = None, **options: Any) -> None:
        self.cluster = TimedCluster()
        for tp in (T0, T1):
            self.cluster.add(tp)
        self.subscription = subscription or owning(T0, T1)
        self.consumer = Consumer(self.cluster, self.subscription, **{**OPTIONS, **options})
        self.began = 0.0

    async def record(self) -> None:
        """Produce one record, and read what the fetcher has by then."""
        first = self.cluster.logs[T0].end
        self.cluster.produce(T0, first + 1, batch(first, 1))
        await settled()
        self.consumer.fetcher.buffer.drain(500)

    def fetches(self) -> list[float]:
        """Return the times of the fetches since the first record, by the clock of the test."""
        return [round(at - self.began, 6) for at, _ in self.cluster.sent if at >= self.began]

    async def run(self, body: Callable[[Paced], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.consumer.fetcher.run)
            await anyio.sleep(PACE)
            self.began = anyio.current_time()
            await self.record()
            await body(self)
            tasks.cancel_scope.cancel()
        self.consumer.fetcher.close()


def paced(
    backend: str,
    body: Callable[[Paced], Awaitable[None]],
    subscription: SubscriptionState | None = None,
    **options: Any,
) -> Paced:
    """Run the body after a silence and one record, whose next fetch is sent at time 0."""
    found: list[Paced] = []

    async def main() -> None:
        found.append(Paced(subscription, **options))
        await found[0].run(body)

    run_virtual_on(backend, main)
    return found[0]


async def one_more(test: Paced) -> None:
    await anyio.sleep(LEAST / 4)
    await test.record()
    await anyio.sleep(PACE)


@BACKENDS
def test_first_record_after_silence_is_not_delayed(backend: str) -> None:
    async def nothing(test: Paced) -> None:
        assert test.consumer.fetcher.buffer.queues.counters.records_delivered == 1

    assert paced(backend, nothing).fetches() == [0.0]


@BACKENDS
def test_fetch_waits_one_interval_after_few_records(backend: str) -> None:
    test = paced(backend, one_more)
    assert test.fetches() == [0.0, LEAST]
    assert test.consumer.fetcher.metrics()["fetches-paced-total"] == 1


@BACKENDS
def test_records_during_interval_come_in_one_response(backend: str) -> None:
    async def many(test: Paced) -> None:
        for _ in range(8):
            await anyio.sleep(LEAST / 4)
            await test.record()
        await anyio.sleep(2 * LEAST)
        test.consumer.fetcher.buffer.drain(500)
        counters = test.consumer.fetcher.buffer.queues.counters
        assert counters.records_delivered == 9

    assert paced(backend, many).fetches() == [0.0, LEAST, 2 * LEAST, 3 * LEAST]


@BACKENDS
def test_no_interval_with_pace_of_zero(backend: str) -> None:
    test = paced(backend, one_more, fetch_pace_ms=0)
    assert test.fetches() == [0.0, LEAST / 4]
    assert test.consumer.fetcher.metrics()["fetches-paced-total"] == 0


@BACKENDS
@pytest.mark.parametrize(("work", "interval"), [(0.1, 0.1 * WORK_FACTOR), (3.0, PACE)])
def test_interval_follows_work_up_to_the_option(backend: str, work: float, interval: float) -> None:
    def worked() -> bool:
        pass_time(work)
        return False

    async def many(test: Paced) -> None:
        for _ in range(3):
            await anyio.sleep(LEAST / 4)
            await test.record()
        await anyio.sleep(3 * PACE)

    test = paced(backend, many, notify_waiting_caller=worked)
    first, second = test.fetches()[:2]
    assert second - first == pytest.approx(interval)


@BACKENDS
def test_no_interval_while_broker_has_more_records(backend: str) -> None:
    async def backlog(test: Paced) -> None:
        await anyio.sleep(LEAST / 4)
        first = test.cluster.logs[T0].end
        batches = [batch(number, 1) for number in range(first, first + 3)]
        for number, data in enumerate(batches, first):
            test.cluster.logs[T0].append(number + 1, data)
        test.cluster.produce(T0, first + 3)
        for _ in range(30):
            await anyio.lowlevel.checkpoint()
            test.consumer.fetcher.buffer.drain(500)
        await anyio.sleep(PACE)

    test = paced(backend, backlog, max_partition_fetch_bytes=1)
    assert test.fetches() == [0.0, LEAST / 4, LEAST / 4, LEAST / 4 + LEAST]


@BACKENDS
def test_no_interval_after_large_response(backend: str) -> None:
    async def large(test: Paced) -> None:
        await anyio.sleep(LEAST / 4)
        first, count = test.cluster.logs[T0].end, PACED_BYTES // 8
        test.cluster.produce(T0, first + count, batch(first, count))
        await settled()

    assert paced(backend, large).fetches() == [0.0, LEAST / 4]


@BACKENDS
@pytest.mark.parametrize("change", ["seek", "resume", "assign", "revoke"])
def test_new_partition_ends_the_interval(backend: str, change: str) -> None:
    async def changed(test: Paced) -> None:
        await anyio.sleep(LEAST / 4)
        await test.record()
        await anyio.sleep(LEAST / 4)
        subscription = test.subscription
        if change == "seek":
            subscription.seek(T1, 0)
        elif change == "resume":
            subscription.resume([T1])
        elif change == "assign":
            subscription.assign([T0, T1])
            subscription.seek(T1, 0)
        else:
            subscription.assign([T0])
        test.consumer.fetcher.wake()
        await settled()

    subscription = owning(T0) if change == "assign" else owning(T0, T1)
    if change == "resume":
        subscription.pause([T1])
    test = paced(backend, changed, subscription)
    assert test.fetches() == ([0.0] if change == "revoke" else [0.0, LEAST / 2])


@BACKENDS
def test_seek_just_before_the_response_ends_the_interval(backend: str) -> None:
    async def sought(test: Paced) -> None:
        await anyio.sleep(LONG_POLL_AFTER / 2)
        test.subscription.seek(T1, 0)
        test.consumer.fetcher.wake()
        await anyio.sleep(LONG_POLL_AFTER / 4)
        await test.record()

    assert paced(backend, sought).fetches() == [0.0, LONG_POLL_AFTER * 3 / 4]


@BACKENDS
def test_extra_connection_is_paced_too(backend: str) -> None:
    """T0 becomes fetchable during a long poll of T1, and then gets records."""

    async def main() -> None:
        test = Paced(owning(T0, T1))
        test.subscription.pause([T0])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(test.consumer.fetcher.run)
            await anyio.sleep(1.0)
            test.subscription.resume([T0])
            test.consumer.fetcher.wake()
            await settled()
            purposes = [purpose for _, purpose, _ in test.cluster.fetches]
            assert purposes == ["fetch", "fetch-side"]
            test.began = anyio.current_time()
            await test.record()
            await anyio.sleep(LEAST / 2)
            assert test.fetches() == [0.0]
            await anyio.sleep(LEAST / 2)
            await settled()
            assert test.fetches() == [0.0, LEAST]
            tasks.cancel_scope.cancel()
        test.consumer.fetcher.close()

    run_virtual_on(backend, main)


@BACKENDS
def test_uncommitted_records_count_only_if_they_are_read(backend: str) -> None:
    async def open_transaction(test: Paced) -> None:
        await anyio.sleep(LEAST / 4)
        log = test.cluster.logs[T0]
        log.batches.append((log.end + 1, batch(log.end, 1)))
        log.stable = log.end + 1
        test.cluster.produce(T0, log.end + 2)
        await anyio.sleep(LEAST)

    read = paced(backend, open_transaction, isolation_level="read_committed")
    assert read.fetches() == [0.0, LEAST]
