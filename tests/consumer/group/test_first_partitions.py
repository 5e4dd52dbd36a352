"""start() waits for the first partitions of a member, by both group protocols."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode
from kohort.protocol import Response
from kohort.testing import Call, Cluster, MemoryCluster
from tests.consumer.virtual import PROTOCOLS, ClassicConsumer, MemoryConsumer
from tests.support.virtual import run_virtual

IDLE_SECONDS = {"classic": 6.0, "consumer": 2.0}
"""Longest time until start() returns in a member beyond the partitions, by protocol.

The other member of a classic group notices the rebalance by its next heartbeat.
"""


@PROTOCOLS
def test_start_waits_for_partitions_that_others_release(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with (
                MemoryConsumer(cluster, "t", group_protocol=protocol),
                MemoryConsumer(cluster, "t", group_protocol=protocol) as second,
            ):
                assert len(second.assignment()) == 1
                assert second.positions().keys() == second.assignment()

    run_virtual(main)


@PROTOCOLS
def test_start_waits_for_partitions_of_a_member_that_left(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            options: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "latest"}
            async with MemoryConsumer(cluster, "t", **options):
                pass
            async with MemoryConsumer(cluster, "t", **options) as second:
                assert len(second.assignment()) == 2
                cluster.produce("t", ["a"], partition=0)
                polled = await second.poll(timeout_ms=5_000)
                assert [r.value for part in polled.values() for r in part] == [b"a"]

    run_virtual(main)


@PROTOCOLS
def test_start_returns_in_a_member_beyond_the_partitions(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as first:
                begun = anyio.current_time()
                async with MemoryConsumer(cluster, "t", group_protocol=protocol) as second:
                    assert anyio.current_time() - begun <= IDLE_SECONDS[protocol]
                    assert len(first.assignment()) + len(second.assignment()) == 1

    run_virtual(main)


def test_start_asks_for_first_partitions_from_the_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster(topics={"t": 1}) as cluster:
        options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g"}
        with KafkaConsumer("t", **options) as first, KafkaConsumer("t", **options) as second:
            first.start()
            second.start()
            assert len(first.assignment()) + len(second.assignment()) == 1
            cluster.wait_until(
                lambda: any(each.api == "ConsumerGroupDescribe" for each in cluster.requests), 90
            )
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_start_of_classic_member_returns_on_empty_assignment() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            synced: list[float] = []

            async def note_time(call: Call) -> Response | None:
                response = await call.proceed()
                if call.client_id == "second":
                    synced.append(anyio.current_time())
                return response

            async with ClassicConsumer(cluster, "t"):
                cluster.on("SyncGroup", note_time)
                async with ClassicConsumer(cluster, "t", client_id="second") as second:
                    if not second.assignment():
                        assert anyio.current_time() - synced[-1] < 0.1

    run_virtual(main)


@pytest.mark.parametrize("others", [1, 3])
def test_start_waits_when_the_idle_check_fails(others: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster, AsyncExitStack() as stack:
            cluster.fail("ConsumerGroupDescribe", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
            await stack.enter_async_context(MemoryConsumer(cluster, "t"))
            begun = anyio.current_time()
            for _ in range(others):
                await stack.enter_async_context(MemoryConsumer(cluster, "t"))
            assert 10 * others <= anyio.current_time() - begun < 12 * others

    run_virtual(main)


def test_start_waits_for_new_partitions_that_nobody_has() -> None:
    """The first member has all partitions of the latest assignment, but not the new topic's."""

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "u": 1}) as cluster:
            async with (
                MemoryConsumer(cluster, "t"),
                MemoryConsumer(cluster, "t", "u") as second,
            ):
                assert second.assignment() == {TopicPartition("u", 0)}

    run_virtual(main)


def test_start_waits_at_most_for_the_request_timeout() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.fail("ConsumerGroupDescribe", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
            async with MemoryConsumer(cluster, "t"):
                begun = anyio.current_time()
                async with MemoryConsumer(cluster, "t", request_timeout_ms=3_000):
                    assert 3 <= anyio.current_time() - begun < 3.5

    run_virtual(main)


@PROTOCOLS
def test_start_does_not_wait_for_topics_without_partitions(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(auto_create_topics=False) as cluster:
            begun = anyio.current_time()
            options: dict[str, Any] = {
                "group_protocol": protocol,
                "allow_auto_create_topics": False,
            }
            async with MemoryConsumer(cluster, "missing", **options):
                assert anyio.current_time() - begun < 1

    run_virtual(main)


@PROTOCOLS
def test_start_does_not_wait_for_a_pattern_without_topics(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster, group_protocol=protocol)
            consumer.subscribe(pattern="^missing")
            begun = anyio.current_time()
            async with consumer:
                assert anyio.current_time() - begun < 1

    run_virtual(main)
