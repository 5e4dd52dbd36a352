"""What process() adds to health() and explain()."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord, Health, KafkaConsumer
from kohort.processing import Retry, Stop, process
from kohort.testing import Cluster
from tests.consumer.kit import Recorder, remove_members
from tests.processing.kit import World, in_world, processing, until

Record = ConsumerRecord[bytes, bytes]

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
HEALTHY = Health(True, True, ())
LIMIT = 90.0


def stuck(health: Health) -> bool:
    return not health.live and " has not returned" in health.reasons[0]


def waits(health: Health) -> bool:
    return health.live and not health.ready and "it is retried" in health.reasons[0]


# -- AsyncKafkaConsumer, on virtual time -----------------------------------------------------------


@BACKENDS
def test_not_live_while_a_handler_is_stuck(backend: str) -> None:
    async def main(world: World) -> None:
        release = anyio.Event()

        async def handler(record: Record) -> None:
            await release.wait()

        world.produce("a")
        consumer = world.consumer()
        async with processing(consumer, handler, stuck_after=20):
            await until(lambda: consumer.health() == HEALTHY)
            await anyio.sleep(15)
            assert consumer.health() == HEALTHY
            await anyio.sleep(10)
            health = consumer.health()
            assert stuck(health) and not health.ready
            assert health.reasons[0].startswith("orders-0 offset 0: in flight for 2")
            assert set(health.reasons) <= set(consumer.explain().reasons)
            release.set()
            await anyio.sleep(2)
            assert consumer.health() == HEALTHY

    in_world(backend, main)


@BACKENDS
def test_not_ready_but_live_while_an_outage_is_waited_for(backend: str) -> None:
    async def main(world: World) -> None:
        is_away = True

        async def handler(record: Record) -> None:
            await anyio.sleep(2)
            if is_away:
                raise ConnectionError("the database is away")

        world.produce("a")
        consumer = world.consumer()
        retry = Retry(None, first=1, longest=1)
        async with processing(consumer, handler, retry=retry, stuck_after=20):
            await until(lambda: consumer.health() == HEALTHY)
            await anyio.sleep(25)
            for _ in range(100):
                assert waits(consumer.health())
                await anyio.sleep(0.1)
            is_away = False
            await until(lambda: world.committed() == 1)
            await anyio.sleep(2)
            assert consumer.health() == HEALTHY

    in_world(backend, main)


@BACKENDS
def test_not_live_when_a_later_attempt_is_stuck(backend: str) -> None:
    async def main(world: World) -> None:
        attempts = 0

        async def handler(record: Record) -> None:
            nonlocal attempts
            attempts += 1
            if attempts < 4:
                await anyio.sleep(10)
                raise ConnectionError
            await anyio.sleep_forever()

        world.produce("a")
        consumer = world.consumer()
        retry = Retry(None, first=1)
        async with processing(consumer, handler, retry=retry, stuck_after=20, drain=0):
            await until(lambda: attempts == 4)
            await anyio.sleep(15)
            assert waits(consumer.health())
            await anyio.sleep(10)
            assert stuck(consumer.health())

    in_world(backend, main)


@BACKENDS
def test_not_ready_while_the_policy_fails_and_not_live_while_it_hangs(backend: str) -> None:
    async def main(world: World) -> None:
        calls = 0

        async def handler(record: Record) -> None:
            await anyio.sleep(15)
            raise ValueError

        async def keep(record: Record, error: Exception, attempts: int) -> None:
            nonlocal calls
            calls += 1
            if calls < 4:
                raise ConnectionError
            await anyio.sleep_forever()

        world.produce("a")
        consumer = world.consumer()
        async with processing(consumer, handler, failed=keep, stuck_after=20, drain=0):
            await until(lambda: calls == 4)  # 15 s, and pauses of 1, 2 and 4 s
            await anyio.sleep(15)
            assert waits(consumer.health())
            await anyio.sleep(10)
            assert stuck(consumer.health())

    in_world(backend, main)


@BACKENDS
def test_sentences_on_many_stuck_records_are_few(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce(*"abcdefgh")
        consumer = world.consumer()
        handler = _sleep_forever
        async with processing(consumer, handler, order="none", stuck_after=20, drain=0):
            await anyio.sleep(30)
            reasons = consumer.health().reasons
            assert len(reasons) == 6
            assert reasons[5] == "3 more records are in flight as long"

    in_world(backend, main)


async def _sleep_forever(record: Record) -> None:
    await anyio.sleep_forever()


@BACKENDS
def test_not_ready_from_the_beginning_of_the_stop(backend: str) -> None:
    async def main(world: World) -> None:
        async def handler(record: Record) -> None:
            await anyio.sleep(10)

        world.produce("a")
        consumer = world.consumer()
        async with anyio.create_task_group() as tasks:
            async with processing(consumer, handler):
                await until(lambda: consumer.health() == HEALTHY)
                await anyio.sleep(1)

                async def look() -> None:
                    await anyio.sleep(3)
                    stopping = Health(True, False, ("process() is about to stop",))
                    assert consumer.health() == stopping

                tasks.start_soon(look)
        assert consumer.health() == Health(True, False, ("the consumer is closed",))
        assert world.committed() == 1

    in_world(backend, main)


@BACKENDS
@pytest.mark.parametrize("error", [ValueError("bad record"), Stop()])
def test_not_live_after_a_failure_of_process(backend: str, error: Exception) -> None:
    async def main(world: World) -> None:
        async def handler(record: Record) -> None:
            raise error

        world.produce("a")
        consumer = world.consumer()
        failed = isinstance(error, ValueError)
        if failed:
            with pytest.raises(ValueError, match="bad record"):
                await process(consumer, handler, handle_signals=False)
        else:
            await process(consumer, handler, handle_signals=False)
        health = consumer.health()
        assert health.live is not failed and not health.ready
        cause = "process() has ended with ValueError: bad record"
        assert health.reasons == (cause if failed else "the consumer is closed",)

    in_world(backend, main)


@BACKENDS
def test_live_after_a_cancelled_process(backend: str) -> None:
    async def main(world: World) -> None:
        consumer = world.consumer()
        with anyio.move_on_after(10):
            await process(consumer, _sleep_forever, handle_signals=False)
        assert consumer.health() == Health(True, False, ("the consumer is closed",))

    in_world(backend, main)


@BACKENDS
def test_brokers_that_are_away_at_the_start_leave_process_live(backend: str) -> None:
    async def main(world: World) -> None:
        consumer: AsyncKafkaConsumer[bytes, bytes] = world.consumer()
        with world.cluster.network_partition():
            async with processing(consumer, _sleep_forever):
                for _ in range(5):
                    await anyio.sleep(5)
                    health = consumer.health()
                    assert health.live and not health.ready
                    assert any("no broker was reached yet" in each for each in health.reasons)

    in_world(backend, main)


# -- KafkaConsumer, in threads ---------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        yield cluster


class Run:
    """A process() in another thread, until the end of the ``with`` block."""

    def __init__(self, cluster: Cluster, handler: Any, **options: Any) -> None:
        self.consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            group_protocol="classic",
            heartbeat_interval_ms=50,
        )
        self.error: BaseException | None = None

        def run() -> None:
            try:
                process(self.consumer, handler, handle_signals=False, **options)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run)

    def __enter__(self) -> Run:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.wakeup()
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()


def test_not_live_while_a_thread_is_stuck(cluster: Cluster) -> None:
    release = threading.Event()
    cluster.produce("orders", ["a"])
    with Run(cluster, lambda record: release.wait(LIMIT) and None, stuck_after=0.2) as run:
        health = run.consumer.health
        cluster.wait_until(lambda: stuck(health()), LIMIT)
        release.set()
        cluster.wait_until(lambda: health() == HEALTHY, LIMIT)


def test_not_ready_but_live_while_a_thread_waits_for_an_outage(cluster: Cluster) -> None:
    is_over = threading.Event()

    def handler(record: Record) -> None:
        if not is_over.is_set():
            raise ConnectionError

    cluster.produce("orders", ["a"])
    retry = Retry(None, first=0.01, longest=0.01)
    with Run(cluster, handler, retry=retry, stuck_after=0.2) as run:
        health = run.consumer.health
        cluster.wait_until(lambda: waits(health()), LIMIT)
        is_over.set()
        cluster.wait_until(lambda: health() == HEALTHY, LIMIT)


def test_not_live_while_a_thread_of_a_lost_partition_is_stuck(cluster: Cluster) -> None:
    release, listener = threading.Event(), Recorder()
    cluster.produce("orders", ["a"])
    run = Run(cluster, lambda record: release.wait(LIMIT) and None, stuck_after=0.2)
    run.consumer.subscribe(["orders"], listener=listener)
    with run:
        health = run.consumer.health
        cluster.wait_until(lambda: stuck(health()), LIMIT)
        remove_members(cluster, "g")
        cluster.wait_until(lambda: listener.count("assigned") == 2, LIMIT)
        assert listener.count("lost") == 1
        assert stuck(health())
        release.set()
        cluster.wait_until(lambda: health() == HEALTHY, LIMIT)


def test_not_ready_while_threads_are_drained(cluster: Cluster) -> None:
    started, release = threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        started.set()
        release.wait(LIMIT)

    cluster.produce("orders", ["a"])
    with Run(cluster, handler, drain=LIMIT) as run:
        assert started.wait(LIMIT)
        run.consumer.wakeup()
        stopping = Health(True, False, ("process() is about to stop",))
        cluster.wait_until(lambda: run.consumer.health() == stopping, LIMIT)
        release.set()
        run.thread.join(LIMIT)
        assert run.consumer.health() == Health(True, False, ("the consumer is closed",))


def test_not_live_after_a_failure_in_a_thread(cluster: Cluster) -> None:
    def handler(record: Record) -> None:
        raise ValueError("bad record")

    cluster.produce("orders", ["a"])
    with Run(cluster, handler) as run:
        run.thread.join(LIMIT)
        assert isinstance(run.error, ValueError)
        health = run.consumer.health()
        assert health == Health(False, False, ("process() has ended with ValueError: bad record",))
