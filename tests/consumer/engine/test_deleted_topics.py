"""Commits of offsets whose topic is deleted, on the virtual clock."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import CommitFailedError, ErrorCode
from kohort.testing import MemoryCluster
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
SECONDS = 3.0
"""Time limit of a step, far below the time limit of a commit."""
QUICK: dict[str, Any] = {
    "auto_create_topics": False,
    "consumer_heartbeat_interval_ms": 1_000,
    "consumer_assignment_interval_ms": 0,
}


async def _reader(cluster: MemoryCluster, consumer: MemoryConsumer) -> None:
    """Read a record of each topic, then delete one topic that is not fetched any longer.

    So a commit or a heartbeat is the first request that shows the deletion.
    """
    for topic in ("t", "u"):
        cluster.produce(topic, [topic])
    assert sorted(await values(consumer, 2)) == [b"t", b"u"]
    consumer.pause(T0)
    await anyio.sleep(1)
    cluster.delete_topic("t")


@pytest.mark.parametrize("interval", [100, 60_000])
def test_deleted_topic_delays_no_rebalance(interval: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "u": 1}, **QUICK) as cluster:
            options: Any = {"group_protocol": "consumer", "auto_commit_interval_ms": interval}
            async with MemoryConsumer(cluster, "t", "u", **options) as consumer:
                await _reader(cluster, consumer)
                cluster.produce("u", ["next"])
                await poll_for(consumer, lambda: consumer.assignment() == {U0}, SECONDS)
            assert cluster.committed("g")[U0].offset == 2

    run_virtual(main)


@PROTOCOLS
def test_commit_fails_soon_when_a_topic_is_deleted(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "u": 1}, **QUICK) as cluster:
            options: Any = {"group_protocol": protocol, "enable_auto_commit": False}
            async with MemoryConsumer(cluster, "t", "u", **options) as consumer:
                await _reader(cluster, consumer)
                with anyio.fail_after(SECONDS):
                    with pytest.raises(
                        CommitFailedError, match=r"t 0: the topic was deleted\."
                    ) as at:
                        await consumer.commit()
                assert set(at.value.offsets) == {T0}
            assert cluster.committed("g")[U0].offset == 1

    run_virtual(main)


@PROTOCOLS
def test_commit_is_repeated_when_the_topic_exists(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}, **QUICK) as cluster:
            cluster.produce("t", ["t"])
            options: Any = {"group_protocol": protocol, "enable_auto_commit": False}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                assert await values(consumer, 1) == [b"t"]
                cluster.fail("OffsetCommit", ErrorCode.UNKNOWN_TOPIC_ID, times=3)
                await consumer.commit()
            assert cluster.committed("g")[T0].offset == 1

    run_virtual(main)
