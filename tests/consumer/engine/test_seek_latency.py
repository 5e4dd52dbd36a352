"""The wait for records after a seek at the end of the log, and the number of fetches.

All on a virtual clock.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.fetcher.requests._connections import EXTRA_POLL_LIMIT
from kohort.protocol.messages import FetchResponse
from kohort.testing import Call, MemoryCluster
from tests.consumer.virtual import EACH_PROTOCOL, MemoryConsumer
from tests.support.virtual import run_virtual

SEEKS = 40
LONG_POLL = 0.5
"""Seconds of a long poll, unless no records have come for a while."""
QUIET_MS = 60_000
"""Time without records after which long polls take 10 s."""


def fetches(cluster: MemoryCluster) -> int:
    return sum(each.api == "Fetch" for each in cluster.requests)


@pytest.mark.parametrize("quiet_ms", [0, QUIET_MS])
@pytest.mark.parametrize("change", ["seek", "resume", "assign"])
def test_change_at_the_log_end_is_served_before_long_poll_ends(change: str, quiet_ms: int) -> None:
    async def main() -> None:
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        waits: list[float] = []
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"], partition=0)
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([first, second])
                assert await consumer.poll(timeout_ms=10_000)
                await consumer.poll(timeout_ms=quiet_ms)
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
@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({}, 5, 8),
        ({"enable_incremental_fetch_sessions": False}, 5, 8),
        ({"fetch_max_wait_ms": 500}, 118, 122),
        ({"fetch_min_bytes": 2}, 118, 122),
        ({"request_timeout_ms": 2000}, 59, 62),
    ],
)
def test_idle_consumer_sends_one_fetch_each_long_poll(
    partitions: int, options: dict[str, Any], least: int, most: int
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": partitions}) as cluster:
            async with MemoryConsumer(cluster, group_id=None, **options) as consumer:
                consumer.assign(TopicPartition("t", number) for number in range(partitions))
                await consumer.poll(timeout_ms=10_000)
                begun = fetches(cluster)
                await consumer.poll(timeout_ms=60_000)
                assert least <= fetches(cluster) - begun <= most

    run_virtual(main)


def test_record_ends_long_poll_of_quiet_topic_at_once() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 100}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign(TopicPartition("t", number) for number in range(100))
                for number in range(3):
                    await consumer.poll(timeout_ms=QUIET_MS + 1000 * number)
                    cluster.produce("t", [b"x"], partition=number)
                    begun = anyio.current_time()
                    assert await consumer.poll(timeout_ms=10_000)
                    assert anyio.current_time() - begun < 0.01
                begun = fetches(cluster)
                await consumer.poll(timeout_ms=1_900)
                assert 3 <= fetches(cluster) - begun <= 4, "0.5, 0.5 and 1 s after records"

    run_virtual(main)


def test_close_does_not_wait_for_long_poll_of_quiet_topic() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t") as consumer:
                await consumer.poll(timeout_ms=QUIET_MS)
                begun = anyio.current_time()
                await consumer.close()
                assert anyio.current_time() - begun < 0.1

    run_virtual(main)


@EACH_PROTOCOL
def test_new_partitions_are_read_in_long_poll_of_quiet_topic() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t") as staying:
                async with MemoryConsumer(cluster, "t") as leaving:
                    for _ in range(30):
                        await staying.poll(timeout_ms=1_000)
                        await leaving.poll(timeout_ms=1_000)
                    assert len(staying.assignment()) == 1
                for number in range(2):
                    cluster.produce("t", [b"x"], partition=number)
                begun, records = anyio.current_time(), 0
                while records < 2:
                    for polled in (await staying.poll(timeout_ms=10_000)).values():
                        records += len(polled)
                    if staying.assignment():
                        assert anyio.current_time() - begun < 20
                assert anyio.current_time() - begun < 5

    run_virtual(main)


def test_silent_broker_is_left_after_long_poll_and_timeout() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                await consumer.poll(timeout_ms=QUIET_MS)
                with cluster.hang("Fetch", times=1) as fault:
                    while not fault.hits:
                        await consumer.poll(timeout_ms=100)
                    cluster.produce("t", [b"x"])
                    begun = anyio.current_time()
                    assert await consumer.poll(timeout_ms=60_000)
                    assert 39 < anyio.current_time() - begun < 41

    run_virtual(main)


def test_explain_names_no_late_fetch_of_a_quiet_topic() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                await consumer.poll(timeout_ms=QUIET_MS)
                waits = set()
                for _ in range(12):
                    await consumer.poll(timeout_ms=1_000)
                    explanation = consumer.explain()
                    assert "has not responded" not in str(explanation)
                    (part,) = explanation.as_dict()["partitions"].values()
                    waits.add(part["in_flight_max_wait_ms"])
                assert waits == {10_000}

    run_virtual(main)


@pytest.mark.parametrize("quiet_ms", [0, QUIET_MS])
def test_few_fetches_follow_a_seek_to_the_log_end(quiet_ms: int) -> None:
    async def main() -> None:
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([first, second])
                await consumer.poll(timeout_ms=5_100)
                await consumer.poll(timeout_ms=quiet_ms)
                begun = fetches(cluster)
                consumer.seek(first, 0)
                await consumer.poll(timeout_ms=60_000)
                assert fetches(cluster) - begun <= 16 + (10 if quiet_ms else 4) / EXTRA_POLL_LIMIT

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
