"""``wait_for_group()`` and ``wait_for_lag()``, on a virtual clock and on ports."""

from __future__ import annotations

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaTimeoutError
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual


def test_waits_end_with_the_members_and_commits_of_a_group() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a", "b", "c"], partition=0)
            assert (await cluster.wait_for_group("g", members=0)).members == ()
            first, second = (MemoryConsumer(cluster, "t", client_id=name) for name in ("a", "b"))

            async def poll(consumer: MemoryConsumer, stop: anyio.Event) -> None:
                async with consumer:
                    while not stop.is_set():
                        await consumer.poll(timeout_ms=500)

            async with anyio.create_task_group() as tasks:
                stop = anyio.Event()
                tasks.start_soon(poll, first, stop)
                assert len((await cluster.wait_for_group("g", timeout=60)).members) == 1
                tasks.start_soon(poll, second, stop)
                found = await cluster.wait_for_group("g", members=2, timeout=60)
                assert {each.client_id for each in found.members} == {"a", "b"}
                await cluster.wait_for_lag("g", timeout=60)
                assert cluster.committed("g")[TopicPartition("t", 0)].offset == 3
                stop.set()
            await cluster.wait_for_group("g", members=0)

    run_virtual(main)


def test_errors_say_what_the_group_was() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b", "c"])
            with pytest.raises(KafkaTimeoutError, match="all partitions, without a commit"):
                await cluster.wait_for_lag("g", timeout=5)
            async with MemoryConsumer(
                cluster, "t", client_id="worker", enable_auto_commit=False
            ) as consumer:
                await consumer.commit({TopicPartition("t", 0): 1})
                with pytest.raises(KafkaTimeoutError, match=r"Stable with worker, .*not .* 2 mem"):
                    await cluster.wait_for_group("g", members=2, timeout=5)
                with pytest.raises(KafkaTimeoutError, match="behind in t-0 by 2 after 5 s"):
                    await cluster.wait_for_lag("g", lag=1, timeout=5)
                await cluster.wait_for_lag("g", lag=2, timeout=5)

    run_virtual(main)


def test_cluster_on_ports_waits_in_the_calling_thread() -> None:
    with Cluster(topics={"t": 1}) as cluster:
        cluster.produce("t", ["a"])
        with KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            assert next(consumer).value == b"a"
            assert cluster.wait_for_group("g", members=1, timeout=90).is_stable
        cluster.wait_for_lag("g", timeout=90)
        cluster.wait_for_group("g", members=0, timeout=90)
