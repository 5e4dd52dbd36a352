"""process() with share consumers: acknowledgements, redelivery, renewals, stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort import AsyncShareConsumer, ShareConsumer, ShareRecord
from kohort.errors import ConfigurationError
from kohort.processing import DeadLetters, GiveUp, Retry, Skip, context, process
from kohort.testing import Cluster, MemoryCluster
from tests.processing.kit import until
from tests.support.virtual import run_virtual_on

LOCK = 30.0
Record = ShareRecord[Any, Any]
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Work:
    """A cluster, and a handler that notes value and delivery of each call."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.calls: list[tuple[str, int]] = []
        self.done: list[str] = []
        self.running = self.most = 0
        self.act: Callable[[Record], Awaitable[object]] = self.nothing

    async def nothing(self, record: Record) -> None: ...

    async def handle(self, record: Record) -> None:
        value = (record.value or b"").decode()
        self.calls.append((value, record.delivery_count))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.act(record)
        finally:
            self.running -= 1
        self.done.append(value)

    def consumer(self, **options: Any) -> AsyncShareConsumer:
        return AsyncShareConsumer(
            "jobs",
            **{
                "bootstrap_servers": self.cluster.bootstrap_servers,
                "connect": self.cluster.connect,
                "group_id": "workers",
                "start": "earliest",
                **options,
            },
        )

    async def process(self, until_done: Callable[[], object], **options: Any) -> None:
        """Process until the condition holds, and then stop."""
        consumer = self.consumer(**options.pop("consumer", {}))
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, self.handle, handle_signals=False, **options)

            tasks.start_soon(run)
            await until(until_done)
            consumer.wakeup()


def on_queue(
    backend: str, scene: Callable[[Work], Awaitable[None]], *values: str, **options: Any
) -> None:
    async def main() -> None:
        options.setdefault("topics", {"jobs": 1})
        async with MemoryCluster(brokers=1, **options) as cluster:
            cluster.produce("jobs", list(values))
            await scene(Work(cluster))

    run_virtual_on(backend, main)


@BACKENDS
def test_a_long_handler_is_called_once_by_renewals(backend: str) -> None:
    async def scene(work: Work) -> None:
        work.act = lambda record: anyio.sleep(3 * LOCK)
        await work.process(lambda: len(work.done) == 1)
        work.act = work.nothing
        work.cluster.produce("jobs", ["b"])
        await work.process(lambda: "b" in work.done)
        assert work.calls == [("a", 1), ("b", 1)]

    on_queue(backend, scene, "a")


@BACKENDS
def test_poison_is_rejected_at_its_last_delivery(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.value == b"poison":
                raise ValueError("no job")

        work.act = act
        with caplog.at_level(logging.WARNING, "kohort.processing"):
            await work.process(lambda: ("poison", 5) in work.calls and len(work.done) == 2)
        await work.process(lambda: True)
        assert [count for value, count in work.calls if value == "poison"] == [1, 2, 3, 4, 5]
        assert sorted(work.done) == ["a", "b"]
        assert "skipped after 1 attempts, because the handler raised ValueError" in caplog.text

    on_queue(backend, scene, "a", "poison", "b")


@BACKENDS
def test_retries_are_in_memory_and_count_as_one_delivery(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.delivery_count < 2 or context.attempt < 3:
                raise OSError

        work.act = act
        await work.process(lambda: work.done, retry=Retry(3, first=20.0))
        assert work.calls == [("a", 1)] * 3 + [("a", 2)] * 3

    on_queue(backend, scene, "a")


@BACKENDS
def test_skip_accepts_and_giving_up_rejects_at_once(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.value == b"skip":
                raise Skip
            if record.value == b"bad":
                raise GiveUp from ValueError("bad")

        work.act = act
        await work.process(lambda: work.done == ["end"], retry=Retry(5), concurrency=1)
        work.cluster.produce("jobs", ["more"])
        await work.process(lambda: "more" in work.done)
        assert work.calls == [("skip", 1), ("bad", 1), ("end", 1), ("more", 1)]

    on_queue(backend, scene, "skip", "bad", "end")


@BACKENDS
def test_concurrency_limits_what_is_acquired(backend: str) -> None:
    async def scene(work: Work) -> None:
        seen: list[int] = []
        consumer = work.consumer()

        async def act(record: Record) -> None:
            await anyio.sleep(1)
            seen.append(consumer.held())

        work.act = act
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, work.handle, concurrency=3, handle_signals=False)

            tasks.start_soon(run)
            await until(lambda: len(work.done) == 20)
            consumer.wakeup()
        assert work.most == max(seen) == 3
        assert len(work.calls) == 20

    on_queue(backend, scene, *map(str, range(20)))


@BACKENDS
def test_records_of_all_leaders_are_handled(backend: str) -> None:
    async def scene(work: Work) -> None:
        for partition in range(6):
            work.cluster.produce("jobs", ["x"] * 3, partition=partition)
        work.act = lambda record: anyio.sleep(1)
        await work.process(lambda: len(work.done) == 18, concurrency=2)
        assert work.most == 2
        assert len(work.calls) == 18

    async def main() -> None:
        async with MemoryCluster(topics={"jobs": 6}, brokers=3) as cluster:
            await scene(Work(cluster))

    run_virtual_on(backend, main)


@BACKENDS
def test_a_stop_drains_and_releases_the_rest(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            await anyio.sleep(5 if record.value == b"short" else 1000)

        work.act = act
        await work.process(lambda: len(work.calls) == 2, drain=10)
        assert work.done == ["short"]
        work.act = work.nothing
        began = anyio.current_time()
        await work.process(lambda: "long" in work.done)
        assert anyio.current_time() - began < 15  # no lock has to expire
        assert sorted(work.calls) == [("long", 1), ("long", 2), ("short", 1)]

    on_queue(backend, scene, "short", "long")


@BACKENDS
def test_a_handler_ends_after_max_runtime(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.delivery_count == 1:
                await anyio.sleep_forever()

        work.act = act
        await work.process(lambda: work.done, max_runtime=100.0)
        assert work.calls == [("a", 1), ("a", 2)]
        assert "has not returned for 10" in caplog.text

    on_queue(backend, scene, "a")


@BACKENDS
def test_dead_letters_have_the_bytes_and_the_delivery_count(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            raise ValueError("no job")

        work.act = act
        await work.process(
            lambda: len(work.cluster.records("letters")) == 1,
            failed=DeadLetters("letters"),
            consumer={"value_deserializer": bytes.upper},
        )
        (letter,) = work.cluster.records("letters")
        headers = dict(letter.headers)
        assert letter.value == b"a"
        assert headers["__dlq.errors.delivery.count"] == b"5"
        assert headers["__dlq.errors.group"] == b"workers"

    on_queue(backend, scene, "a", topics={"jobs": 1, "letters": 1})


def test_options_of_consumer_groups_are_refused() -> None:
    consumer = ShareConsumer("jobs", group_id="workers")
    with pytest.raises(ConfigurationError, match="a share group has no order"):
        process(consumer, print, order="key")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"process\(delay=...\) is not possible"):
        process(consumer, print, delay=1.0)  # type: ignore[call-overload]


def test_threads_handle_a_queue() -> None:
    calls: list[tuple[Any, int]] = []
    finished = threading.Event()
    with Cluster(topics={"jobs": 2}, share_lock_ms=1_500) as cluster:
        cluster.produce("jobs", ["a", "poison", "long"])
        consumer = ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        )

        def handler(record: Record) -> None:
            calls.append((record.value, record.delivery_count))
            if record.value == b"poison":
                if record.delivery_count == 5:
                    finished.set()
                raise ValueError
            if record.value == b"long":
                finished.wait(50)

        def stop() -> None:
            finished.wait(50)
            consumer.wakeup()

        stopper = threading.Thread(target=stop)
        stopper.start()
        process(consumer, handler, concurrency=3)
        stopper.join()
    assert sorted(calls) == [
        (b"a", 1),
        (b"long", 1),
        *((b"poison", count) for count in range(1, 6)),
    ]
