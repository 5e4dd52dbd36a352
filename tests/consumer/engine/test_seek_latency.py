"""The wait for records after a seek at the end of the log, and the number of fetches.

All on a virtual clock.
"""

from __future__ import annotations

import anyio
import pytest

from kohort import TopicPartition
from kohort.protocol.messages import FetchResponse
from kohort.testing import Call, MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

SEEKS = 40
LONG_POLL = 0.5
"""Seconds of fetch_max_wait_ms, whose default the consumers have."""


def fetches(cluster: MemoryCluster) -> int:
    return sum(each.api == "Fetch" for each in cluster.requests)


@pytest.mark.parametrize("change", ["seek", "resume", "assign"])
def test_change_at_the_log_end_is_served_before_long_poll_ends(change: str) -> None:
    async def main() -> None:
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        waits: list[float] = []
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"], partition=0)
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([first, second])
                assert await consumer.poll(timeout_ms=10_000)
                for number in range(SEEKS):
                    await consumer.poll(timeout_ms=number % 8 * 20)
                    match change:
                        case "resume":
                            consumer.pause(first)
                            consumer.resume(first)
                        case "assign":
                            consumer.assign([second])
                            consumer.assign([first, second])
                    consumer.seek(first, 0)
                    begun = anyio.current_time()
                    assert await consumer.poll(timeout_ms=10_000)
                    waits.append(anyio.current_time() - begun)
        assert max(waits) < LONG_POLL / 2
        assert sorted(waits)[SEEKS // 2] < 0.05

    run_virtual(main)


@pytest.mark.parametrize("partitions", [1, 100])
def test_idle_consumer_sends_one_fetch_each_long_poll(partitions: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": partitions}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign(TopicPartition("t", number) for number in range(partitions))
                await consumer.poll(timeout_ms=5_000)
                begun = fetches(cluster)
                await consumer.poll(timeout_ms=60_000)
                assert 60 / LONG_POLL - 2 <= fetches(cluster) - begun <= 60 / LONG_POLL + 2

    run_virtual(main)


def test_few_fetches_follow_a_seek_to_the_log_end() -> None:
    async def main() -> None:
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([first, second])
                await consumer.poll(timeout_ms=5_100)
                begun = fetches(cluster)
                consumer.seek(first, 0)
                await consumer.poll(timeout_ms=60_000)
                assert fetches(cluster) - begun <= 60 / LONG_POLL + 8

    run_virtual(main)


def test_partition_omitted_by_full_fetches_is_requested_again() -> None:
    left_out = 0

    async def leave_out(call: Call) -> FetchResponse:
        nonlocal left_out
        response = await call.proceed()
        assert isinstance(response, FetchResponse)
        left_out += 1
        for topic in response.responses:
            topic.partitions = [each for each in topic.partitions if each.partition_index]
        return response

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"], partition=0)
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
                with cluster.on("Fetch", leave_out):
                    assert not await consumer.poll(timeout_ms=10_000)
                assert 2 <= left_out <= 150, "no busy loop"
                assert await consumer.poll(timeout_ms=10_000)

    run_virtual(main)
