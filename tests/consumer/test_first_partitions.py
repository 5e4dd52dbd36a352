"""start() waits for the first partitions of a member, by both group protocols."""

from __future__ import annotations

from typing import Any

import anyio

from kohort.testing import MemoryCluster
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer
from tests.support.virtual import run_virtual

IDLE_SECONDS = {"classic": (0.0, 6.0), "consumer": (10.0, 12.0)}
"""Least and longest time until start() returns in a member beyond the partitions, by protocol."""


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
                    least, longest = IDLE_SECONDS[protocol]
                    assert least <= anyio.current_time() - begun <= longest
                    assert len(first.assignment()) + len(second.assignment()) == 1

    run_virtual(main)


def test_start_waits_at_most_for_the_request_timeout() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
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
