"""Repeated commits of unchanged offsets, before brokers delete them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.protocol.messages import OffsetCommitRequest
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

PLACES = [TopicPartition("t", number) for number in range(3)]
LONG = 3 * 3600.0
RETENTION = {"offsets_retention_minutes": 60, "offsets_retention_check_interval_ms": 60_000}


class Patient(MemoryConsumer):
    """A consumer that sends few requests, so that simulated hours are short."""

    def __init__(self, cluster: MemoryCluster, *topics: str, **configs: Any) -> None:
        super().__init__(cluster, *topics, **{"fetch_max_wait_ms": 20_000, **configs})


def on_cluster(script: Callable[[MemoryCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 3, "u": 1}, group_settings=RETENTION) as cluster:
            await script(cluster)

    run_virtual(main)


def commits(cluster: MemoryCluster) -> list[int]:
    """Return the number of partitions of each commit."""
    requests = [r.message for r in cluster.requests if isinstance(r.message, OffsetCommitRequest)]
    return [sum(len(topic.partitions) for topic in request.topics) for request in requests]


def offsets(cluster: MemoryCluster) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in cluster.committed("g").items()}


@pytest.mark.parametrize("polls", [True, False])
def test_unchanged_offsets_outlive_the_retention(polls: bool) -> None:
    """Cover partitions that were read, one that was only looked up, and a paused one."""

    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["a", "b"], partition=0)
        cluster.produce("t", ["c"], partition=2)
        async with Patient(cluster) as one:
            one.assign(PLACES)
            await values(one, 3)
            one.pause(PLACES[2])
            await one.poll()
            for _ in range(24):
                await anyio.sleep(LONG / 24)
                if polls:
                    await one.poll()
            expected = {PLACES[0]: 2, PLACES[1]: 0, PLACES[2]: 1}
            assert offsets(cluster) == expected
            made = commits(cluster)
            assert made[-15:] == [3] * 15  # one request for all partitions every ten minutes
            assert 17 <= len(made) <= 20  # every ten minutes

    on_cluster(script)


def test_offset_that_was_only_fetched_is_committed_again() -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["a", "b"], partition=0)
        async with Patient(cluster) as one:
            one.assign(PLACES[:1])
            await values(one, 2)
        assert offsets(cluster) == {PLACES[0]: 2}
        async with Patient(cluster) as again:
            again.assign(PLACES[:1])
            await poll_for(again, again.positions)
            await anyio.sleep(LONG)
            assert offsets(cluster) == {PLACES[0]: 2}

    on_cluster(script)


def test_offsets_expire_when_they_are_not_committed_again() -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["a"], partition=0)
        async with Patient(cluster, offsets_recommit_interval_ms=None) as one:
            one.assign(PLACES[:1])
            await values(one, 1)
            await anyio.sleep(LONG)
            assert offsets(cluster) == {}
            assert len(commits(cluster)) <= 2

    on_cluster(script)


def test_member_of_a_group_does_not_commit_again() -> None:
    """A group with members keeps the offsets of the topics that they subscribe to."""

    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["a"], partition=0)
        async with Patient(cluster, "t", max_poll_interval_ms=2**31 - 1) as one:
            await values(one, 1)
            for _ in range(24):
                await anyio.sleep(LONG / 24)
                await one.poll()
            assert offsets(cluster)[PLACES[0]] == 1
            assert len(commits(cluster)) <= 2

    on_cluster(script)


def test_a_commit_that_failed_is_made_at_the_next_interval() -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.produce("t", ["a"], partition=0)
        options: dict[str, Any] = {"request_timeout_ms": 5000, "fetch_max_wait_ms": 500}
        async with Patient(cluster, **options) as one:
            one.assign(PLACES[:1])
            await values(one, 1)
            await one.poll()
            await anyio.sleep(590)
            hanging = cluster.hang("OffsetCommit")
            await anyio.sleep(30)
            hanging.stop()
            before = len(commits(cluster))
            await anyio.sleep(10)
            assert len(commits(cluster)) > before

    on_cluster(script)


def test_interval_may_be_shorter_than_that_of_automatic_commits() -> None:
    async def script(cluster: MemoryCluster) -> None:
        options: dict[str, Any] = {
            "auto_commit_interval_ms": 7_200_000,
            "offsets_recommit_interval_ms": 600_000,
        }
        async with Patient(cluster, **options) as one:
            one.assign(PLACES[:1])
            await poll_for(one, one.positions)
            await anyio.sleep(6000)
            assert 9 <= len(commits(cluster)) <= 11

    on_cluster(script)


@pytest.mark.parametrize("automatic", [True, False])
def test_explanation_says_who_has_to_commit_again(automatic: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with Patient(cluster, enable_auto_commit=automatic) as one:
            one.assign(PLACES[:1])
            await poll_for(one, one.positions)
            text = str(one.explain())
            assert ("committed again every 600 s" in text) is automatic
            assert ("Commit them again within offsets.retention.minutes" in text) is not automatic
        async with Patient(cluster, "t", enable_auto_commit=automatic) as member:
            assert "retention" not in str(member.explain())

    on_cluster(script)
