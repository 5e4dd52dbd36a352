"""The commit of a cooperative member that leaves while its JoinGroup is in flight."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack

import anyio
import pytest

from kohort import TopicPartition
from kohort.coordinator_client.classic._leaving import SYNC_WAIT_SECONDS
from kohort.errors import ErrorCode
from kohort.protocol import Response
from kohort.protocol.messages import OffsetCommitResponse
from kohort.testing import Call, Cluster, MemoryCluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Recorder, poll_until, read
from tests.consumer.virtual import MemoryConsumer, poll_for, polled
from tests.support.virtual import run_virtual

COOPERATIVE = "cooperative-sticky"


class Overtaken:
    """Faults that complete a join round before the member's next commit and delay JoinGroup."""

    def __init__(self, cluster: Cluster | MemoryCluster, client_id: str) -> None:
        self.asked = threading.Event()
        """Set when the JoinGroup request arrives."""
        self.codes: list[int] = []
        """Error codes of the commits, in order."""
        self.taken = anyio.Event()
        """Set when a commit succeeds."""
        self._joined = anyio.Event()
        self._refused = anyio.Event()
        cluster.on("JoinGroup", self._join, keep=False, client_id=client_id)
        cluster.on("OffsetCommit", self._commit, client_id=client_id)

    async def _join(self, call: Call) -> Response | None:
        self.asked.set()
        answer = await call.proceed()
        self._joined.set()
        await self._refused.wait()
        return answer

    async def _commit(self, call: Call) -> Response | None:
        await self._joined.wait()
        answer = await call.proceed()
        assert isinstance(answer, OffsetCommitResponse)
        self.codes += [part.error_code for topic in answer.topics for part in topic.partitions]
        self._refused.set()
        if not any(self.codes[-1:]):
            self.taken.set()
        return answer


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_leaving_commits_again_after_the_join_round(how: str, leads: bool) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a", "b"])
            first, second, third = (
                MemoryConsumer(
                    cluster,
                    "t",
                    client_id=f"m{number}",
                    partition_assignment_strategy=COOPERATIVE,
                    auto_commit_interval_ms=600_000,
                    heartbeat_interval_ms=100,
                )
                for number in range(3)
            )
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(first)
                await poll_for(first, lambda: len(first.assignment()) == 2)
                await stack.enter_async_context(second)
                async with polled(first):
                    await poll_for(second, lambda: len(second.assignment()) == 1)
                leaver, other = (first, second) if leads else (second, first)
                await stack.enter_async_context(polled(other))
                (tp,) = leaver.assignment()
                await poll_for(leaver, lambda: cluster.group("g").is_stable)
                while await leaver.position(tp) < 1:
                    await leaver.poll(timeout_ms=100)
                overtaken = Overtaken(cluster, "m0" if leads else "m1")
                tasks = await stack.enter_async_context(anyio.create_task_group())
                tasks.start_soon(_join, third)
                await poll_for(leaver, overtaken.asked.is_set)
                begun = anyio.current_time()
                if how == "close":
                    await leaver.close()
                else:
                    await leaver.unsubscribe()
                    await overtaken.taken.wait()
                assert anyio.current_time() - begun < SYNC_WAIT_SECONDS
                assert overtaken.codes[0] == ErrorCode.ILLEGAL_GENERATION
                assert overtaken.codes[-1] == ErrorCode.NONE
                assert cluster.committed("g")[tp].offset == 1

    run_virtual(main)


async def _join(consumer: MemoryConsumer) -> None:
    async with consumer:
        pass


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_closing_commits_again_after_the_join_round(
    how: str, cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    listener = Recorder()
    consumer = make(
        client_id=group,
        group_id=group,
        partition_assignment_strategy=COOPERATIVE,
        auto_commit_interval_ms=600_000,
    )
    consumer.subscribe([topic], listener=listener)
    read(consumer, 1)
    overtaken = Overtaken(cluster, group)
    consumer.enforce_rebalance("a test")
    poll_until(consumer, overtaken.asked.is_set)
    getattr(consumer, how)()
    assert overtaken.codes[0] == ErrorCode.ILLEGAL_GENERATION
    assert overtaken.codes[-1] == ErrorCode.NONE
    assert cluster.committed(group)[TopicPartition(topic, 0)].offset == 1
    assert listener.names == ["assigned", "revoked"]
    assert not cluster.group(group).members
