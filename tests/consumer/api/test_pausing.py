"""The methods pause() and resume() while another task waits for records."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from kohort import TopicPartition
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_resume_returns_buffered_records_to_a_waiting_task() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            tp = PARTITIONS[0]
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                await consumer.poll(timeout_ms=10_000, max_records=1)
                consumer.pause(tp)

                async def wait() -> None:
                    began = anyio.current_time()
                    polled = await consumer.poll(timeout_ms=600_000)
                    assert [record.value for record in polled[tp]] == [b"b"]
                    assert anyio.current_time() - began < 10

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait)
                    await anyio.sleep(5)
                    consumer.resume(tp)

    run_virtual(main)


def test_iteration_returns_all_buffered_records_after_a_pause() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            for tp in PARTITIONS:
                cluster.produce("t", [b"%d" % n for n in range(9)], partition=tp.partition)
            async with MemoryConsumer(cluster, "t", group_id=None, max_poll_records=3) as consumer:
                found: dict[int, list[int]] = {0: [], 1: []}

                async def take(count: int) -> None:
                    for _ in range(count):
                        record = await anext(consumer)
                        found[record.partition].append(record.offset)

                await anyio.sleep(5)
                await take(1)
                consumer.pause(*(tp for tp in PARTITIONS if found[tp.partition]))
                await take(1)
                assert found == {0: [0], 1: [0]}, "two are held of each"
                consumer.pause(*PARTITIONS)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take, 16)
                    await anyio.sleep(0.5)
                    consumer.resume(*PARTITIONS)
                assert found == {0: list(range(9)), 1: list(range(9))}

    run_virtual(main)


def test_the_program_and_a_library_do_not_undo_the_pauses_of_each_other() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            tp = PARTITIONS[0]
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                consumer.pause(tp, owner="library")
                consumer.pause(tp)
                consumer.resume(tp, owner="library")
                assert consumer.paused() == {tp}
                consumer.pause(tp, owner="library")
                consumer.resume(tp)
                assert consumer.paused() == {tp}
                assert not await consumer.poll(timeout_ms=10_000)
                consumer.resume(tp, owner="library")
                assert [r.value for r in (await consumer.poll(timeout_ms=10_000))[tp]] == [b"a"]
                for wrong in ("", 1):
                    with pytest.raises(TypeError, match="owner must be a str"):
                        consumer.pause(tp, owner=cast("str", wrong))

    run_virtual(main)
