"""Functions that run as long as their partition is owned."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from kohort import ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.errors import ConfigurationError, IllegalStateError
from kohort.processing import (
    AsyncPartitionRecords,
    PartitionRecords,
    Stop,
    context,
    process,
)
from kohort.testing import Cluster
from tests.processing.kit import World, in_world, until

Record = ConsumerRecord[bytes, bytes]
Records = AsyncPartitionRecords[bytes, bytes]

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@both
def test_a_task_lives_as_long_as_its_partition(backend: str) -> None:
    async def main(world: World) -> None:
        log: list[tuple[str, int, object]] = []

        def totals(name: str) -> Any:
            async def partition(tp: TopicPartition, records: Records) -> None:
                log.append((name, tp.partition, "begin"))
                async for record in records:
                    log.append((name, tp.partition, record.value))
                    records.done(record)
                log.append((name, tp.partition, "end"))

            return partition

        first, second = world.consumer(), world.consumer()
        world.produce("a")
        world.produce("b", partition=1)
        async with anyio.create_task_group() as tasks:

            async def run(consumer: Any, name: str) -> None:
                await process(consumer, each_partition=totals(name), handle_signals=False)

            tasks.start_soon(run, first, "first")
            await until(lambda: (world.committed(0), world.committed(1)) == (1, 1))
            assert len(log) == 4
            tasks.start_soon(run, second, "second")
            await until(lambda: ("second", 1, "begin") in log or ("second", 0, "begin") in log)
            moved = next(at for name, at, _ in log if name == "second")
            assert ("first", moved, "end") in log
            assert ("first", 1 - moved, "end") not in log
            world.produce("c", partition=moved)
            await until(lambda: ("second", moved, b"c") in log)
            first.wakeup()
            second.wakeup()
        assert ("second", moved, "end") in log
        assert world.committed(moved) == 2

    in_world(backend, main, partitions=2)


@both
def test_the_commit_follows_the_first_record_that_is_not_done(backend: str) -> None:
    async def main(world: World) -> None:
        async def partition(tp: TopicPartition, records: Records) -> None:
            kept = []
            async for record in records:
                if record.value == b"open":
                    kept.append(record)
                else:
                    records.done(record)
                if record.value == b"last":
                    await until(lambda: world.committed() == 1)
                    records.done(*kept)

        world.produce("a", "open", "b", "last")
        consumer = world.consumer()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, each_partition=partition, handle_signals=False)

            tasks.start_soon(run)
            await until(lambda: world.committed() == 4)
            consumer.wakeup()

    in_world(backend, main)


@both
def test_a_task_is_cancelled_after_the_drain(backend: str) -> None:
    async def main(world: World) -> None:
        cancelled: list[bool] = []

        async def partition(tp: TopicPartition, records: Records) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append(context.cancelled)

        consumer = world.consumer()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, each_partition=partition, drain=3, handle_signals=False)

            tasks.start_soon(run)
            await anyio.sleep(10)
            consumer.wakeup()
        assert cancelled == [True]

    in_world(backend, main)


@both
@pytest.mark.parametrize("how", ["raises", "returns", "stops"])
def test_a_task_that_ends_ends_process(backend: str, how: str) -> None:
    async def main(world: World) -> None:
        async def partition(tp: TopicPartition, records: Records) -> None:
            async for _ in records:
                if how == "returns":
                    return
                raise Stop if how == "stops" else ValueError("bad")

        world.produce("a")
        run = process(world.consumer(), each_partition=partition, handle_signals=False)
        if how == "stops":
            await run
        else:
            error = IllegalStateError if how == "returns" else ValueError
            with pytest.raises(error, match=r"bad|still assigned"):
                await run
        assert world.committed() in (None, 0)

    in_world(backend, main)


def test_a_thread_lives_as_long_as_its_partition() -> None:
    log: list[object] = []
    with Cluster(topics={"orders": 1}) as cluster:
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        )

        def partition(tp: TopicPartition, records: PartitionRecords[bytes, bytes]) -> None:
            for record in records:
                log.append(record.value)
                records.done(record)
                if record.value == b"c":
                    consumer.wakeup()
            log.append("end")

        cluster.produce("orders", ["a", "b", "c"])
        process(consumer, each_partition=partition)
        assert log == [b"a", b"b", b"c", "end"]
        assert [at.offset for at in cluster.committed("g").values()] == [3]


def test_options_of_handlers_are_refused() -> None:
    wrong: Any = process
    consumer = KafkaConsumer("orders", group_id="g")
    refused: list[dict[str, Any]] = [{"retry": []}, {"failed": "skip"}, {"order": "key"}]
    for options in refused:
        with pytest.raises(ConfigurationError, match="each_partition"):
            wrong(consumer, each_partition=print, **options)
    both_given: list[dict[str, Any]] = [{}, {"handler": print, "each_partition": print}]
    for handlers in both_given:
        with pytest.raises(ConfigurationError, match="either a handler"):
            wrong(consumer, **handlers)


def test_the_cancellation_of_an_awaited_task_is_a_failure() -> None:
    async def main(world: World) -> None:
        async def partition(tp: TopicPartition, records: Records) -> None:
            async for _ in records:
                task = asyncio.create_task(anyio.sleep(100))
                task.cancel()
                await task

        world.produce("a")
        with pytest.raises(Exception, match="cancellation") as raised:
            await process(world.consumer(), each_partition=partition, handle_signals=False)
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)

    in_world("asyncio", main)
