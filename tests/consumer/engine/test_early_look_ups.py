"""A new group: offsets are looked up before the first partitions are assigned."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kohort import AsyncRebalanceListener
from kohort.errors import ErrorCode
from kohort.testing import MemoryCluster
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.consumer.virtual import ClassicConsumer, MemoryConsumer, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)


def counts(cluster: MemoryCluster) -> Counter[str]:
    """Return the number of requests about offsets, by API."""
    return Counter(each.api for each in cluster.requests if "Offset" in each.api)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_each_offset_is_looked_up_once(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}) as cluster:
            for partition in range(4):
                cluster.produce("t", ["a"], partition=partition)
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as consumer:
                await values(consumer, 4)
                assert counts(cluster) == {"OffsetFetch": 1, "ListOffsets": 1}

    run_virtual(main)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_later_generation_sends_no_request_in_vain(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as consumer:
                await values(consumer, 2)
            cluster.produce("t", ["c"])
            before = counts(cluster)
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as consumer:
                assert await values(consumer, 1) == [b"c"]
                assert counts(cluster) - before == {"OffsetFetch": 1}  # close() commits later

    run_virtual(main)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_offset_wins_in_the_first_generation(protocol: str) -> None:
    """A tool may set offsets of a group before it has members."""

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            async with MemoryConsumer(cluster) as other:
                other.assign([T0])
                await other.commit({T0: OffsetAndMetadata(1)})
            async with MemoryConsumer(cluster, "t", group_protocol=protocol) as consumer:
                assert await values(consumer, 1) == [b"b"]

    run_virtual(main)


class Committing(AsyncRebalanceListener):
    """A listener that commits an offset of each new partition."""

    def __init__(self) -> None:
        self.consumer: Any = None

    async def on_partitions_revoked(self, partitions: Any) -> None:
        """Do nothing."""

    async def on_partitions_assigned(self, partitions: Any) -> None:
        await self.consumer.commit({tp: OffsetAndMetadata(1) for tp in partitions})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commit_of_a_listener_counts(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            async with MemoryConsumer(cluster, group_protocol=protocol) as consumer:
                listener = Committing()
                listener.consumer = consumer
                consumer.subscribe(["t"], listener=listener)
                assert await values(consumer, 1) == [b"b"]

    run_virtual(main)


def test_offsets_read_before_a_failed_sync_are_read_again() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            with cluster.fail("SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS, times=1):
                async with ClassicConsumer(cluster, "t") as consumer:
                    assert await values(consumer, 1) == [b"a"]
                    assert consumer.group_metadata().generation_id == 2
            assert counts(cluster)["OffsetFetch"] == 2

    run_virtual(main)


@pytest.mark.parametrize("api", ["OffsetFetch", "ListOffsets"])
def test_failed_early_look_up_is_repeated(api: str) -> None:
    code = {
        "OffsetFetch": ErrorCode.UNSTABLE_OFFSET_COMMIT,
        "ListOffsets": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }[api]

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            with cluster.fail(api, code, times=1):
                async with ClassicConsumer(cluster, "t") as consumer:
                    assert await values(consumer, 1) == [b"a"]
                    assert counts(cluster)[api] == 2

    run_virtual(main)
