"""``read_async()`` and ``read_batches_async()``: equal to the sync calls, on asyncio and trio."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest

import kohort
from kohort.errors import ErrorCode, KafkaTimeoutError, UnknownTopicOrPartitionError
from kohort.testing import Cluster, MemoryCluster
from tests.support.virtual import run_virtual


@pytest.mark.anyio
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"since": 2, "until": {0: 4}},
        {"partitions": [1], "until": 3},
        {"since": "latest"},
        {"isolation_level": "read_committed"},
    ],
)
@pytest.mark.cases(5)
async def test_async_read_equals_the_sync_one(given: dict[str, Any]) -> None:
    with Cluster(topics={"orders": 2}) as cluster:
        for number in range(2):
            cluster.produce("orders", [f"{each}" for each in range(6)], partition=number)
        options = {"bootstrap_servers": cluster.bootstrap_servers, **given}
        found = await kohort.read_async("orders", **options)
        expected = await anyio.to_thread.run_sync(lambda: kohort.read("orders", **options))
    places = [(each.partition, each.offset, each.value) for each in found]
    assert sorted(places) == sorted((each.partition, each.offset, each.value) for each in expected)


def test_async_parts_have_progress_and_end_early() -> None:
    seen: list[kohort.ReadProgress] = []

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            options: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "connect": cluster.connect,
            }
            cluster.produce("orders", ["x"] * 10)
            parts = kohort.read_batches_async("orders", progress=seen.append, **options)
            async with aclosing(parts):
                async for part in parts:
                    assert len(part) == 10
                    break
            with pytest.raises(UnknownTopicOrPartitionError):
                await kohort.read_async("nowhere", **options)
            with pytest.raises(ValueError, match="is a shift"):
                await kohort.read_async("orders", since="+1", **options)

    run_virtual(main)
    assert seen == [(10, 10, 10)]


def test_async_read_raises_when_no_record_arrives() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"orders": 1}) as cluster:
            cluster.produce("orders", ["x"])
            cluster.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1_000_000)
            with pytest.raises(KafkaTimeoutError, match="orders-0 stopped at offset 0 of 1"):
                await kohort.read_async(
                    "orders",
                    bootstrap_servers=cluster.bootstrap_servers,
                    connect=cluster.connect,
                    timeout_ms=5000,
                )

    run_virtual(main)
