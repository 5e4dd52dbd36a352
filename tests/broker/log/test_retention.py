"""Retention: topics delete records that are too old or too many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import pytest
import trio
from trio.testing import MockClock

from kohort.errors import ErrorCode
from kohort.protocol.messages import ListOffsetsRequest
from kohort.testing import Cluster, MemoryCluster
from tests.broker.partition_requests import end_of_epoch, fetch
from tests.broker.raw import Raw

T = TypeVar("T")
HOUR_MS = 3_600_000


def on_virtual_time(function: Callable[[], Awaitable[T]]) -> T:
    return trio.run(function, clock=MockClock(autojump_threshold=0))


def offsets(cluster: Cluster | MemoryCluster) -> list[int]:
    return [record.offset for record in cluster.records("t")]


def test_records_are_deleted_when_they_are_too_old() -> None:
    async def main() -> list[list[int]]:
        async with MemoryCluster() as cluster:
            cluster.create_topic("t", 1, {"retention.ms": str(HOUR_MS)})
            cluster.produce("t", ["a", "b"])
            await anyio.sleep(1800)
            cluster.produce("t", ["c"])
            await anyio.sleep(1799)
            seen = [offsets(cluster)]
            await anyio.sleep(302)
            seen.append(offsets(cluster))
            await anyio.sleep(1800)
            return [*seen, offsets(cluster)]

    assert on_virtual_time(main) == [[0, 1, 2], [2], []], "retention runs every five minutes"


def test_a_setting_that_comes_later_counts_from_then_on() -> None:
    async def main() -> None:
        async with MemoryCluster(
            topics={"t": 1, "u": 1}, log_retention_check_interval_ms=1000
        ) as cluster:
            cluster.produce("t", ["a"])
            cluster.produce("u", ["a"])
            await anyio.sleep(80_000)
            assert offsets(cluster) == [0], "nothing is deleted by default"
            cluster.create_topic("v", 1, {"retention.ms": "5000"})
            cluster.produce("v", ["a"])
            await anyio.sleep(4)
            assert len(cluster.records("v")) == 1
            await anyio.sleep(3)
            assert cluster.records("v") == []
            assert offsets(cluster) == [0]

    on_virtual_time(main)


def test_so_many_bytes_are_kept() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t", 1, {"retention.bytes": "250"})
        for _ in range(5):
            cluster.produce("t", [b"x" * 31])  # 100 bytes a batch
        cluster.delete_old_records("t")
        assert offsets(cluster) == [2, 3, 4], "at least retention.bytes are kept"
        cluster.delete_old_records("t")
        assert offsets(cluster) == [2, 3, 4]


@pytest.mark.parametrize(
    ("policy", "left"), [("delete", []), ("compact", [0, 1]), ("compact,delete", [])]
)
def test_only_topics_whose_policy_it_is_delete(policy: str, left: list[int]) -> None:
    with Cluster() as cluster:
        cluster.create_topic("t", 1, {"retention.ms": "0", "cleanup.policy": policy})
        cluster.produce("t", [("a", "1")])
        cluster.produce("t", [("a", "2")])
        if policy != "delete":
            cluster.compact("t")
        cluster.wait_until(lambda: _deleted(cluster) == left, timeout=60)


def _deleted(cluster: Cluster) -> list[int]:
    cluster.delete_old_records("t")
    return offsets(cluster)


def test_what_starts_later_says_so_everywhere() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", 1, {"retention.bytes": "0"})
        cluster.produce("t", ["a"])
        cluster.move_leader("t")
        cluster.produce("t", ["b"])
        cluster.move_leader("t")
        cluster.produce("t", ["c"])
        cluster.delete_old_records("t")
        leader = cluster.leader("t")
        assert offsets(cluster) == []
        assert fetch(cluster, leader, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(cluster, leader, 2, fetched=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(cluster, leader, 3).log_start_offset == 3
        assert end_of_epoch(cluster, leader, 0) == (0, 0, 3)
        assert end_of_epoch(cluster, leader, 2) == (0, 2, 3)
        earliest = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[earliest])
        with Raw(cluster, leader) as raw:
            answer = raw.ask(ListOffsetsRequest(topics=[topic]), 6).topics[0].partitions[0]
        assert (answer.offset, answer.leader_epoch) == (3, 2)
