"""Classic members of a consumer group (KIP-848), whose generation goes on without them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.coordinator_client.assignors import Assignment
from kohort.coordinator_client.classic._embedded_protocol import write_assignment
from kohort.errors import ErrorCode
from kohort.protocol import Response
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse
from kohort.testing import Call, MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import ClassicConsumer, MemoryConsumer, polled, values
from tests.support.virtual import run_virtual

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COOPERATIVE: dict[str, Any] = {
    "partition_assignment_strategy": ["cooperative-sticky"],
    "heartbeat_interval_ms": 500,
}
QUICK: dict[str, Any] = {
    "consumer_heartbeat_interval_ms": 500,
    "consumer_assignment_interval_ms": 0,
}


async def _without_leader(call: Call) -> Response | None:
    """Return the response of a consumer group, which names no leader."""
    response = await call.proceed()
    assert isinstance(response, JoinGroupResponse)
    response.leader = ""
    return response


async def _only_first_partition(call: Call) -> Response | None:
    await anyio.sleep(1)  # until the caller has left poll()
    response = await call.proceed()
    assert isinstance(response, SyncGroupResponse)
    response.assignment = write_assignment(Assignment((T0,)))
    return response


def test_automatic_commit_leaves_out_lost_partitions(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            for number in range(2):
                cluster.produce("t", ["a"], partition=number)
            listener = Recorder()
            consumer = ClassicConsumer(
                cluster,
                auto_commit_interval_ms=20_000,
                rebalance_without_poll="never",
                **COOPERATIVE,
            )
            consumer.subscribe(["t"], listener=listener)
            async with consumer:
                await values(consumer, 2)
                cluster.on("JoinGroup", _without_leader, keep=1)
                synced = cluster.on("SyncGroup", _only_first_partition, keep=1)
                consumer.enforce_rebalance()
                while not synced.hits:
                    await consumer.poll(timeout_ms=10)
                await anyio.sleep(21)
                assert consumer.assignment() == {T0, T1}, "the callback waits for poll()"
                assert cluster.committed("g").keys() == {T0}
                await consumer.poll(timeout_ms=100)
                assert listener.calls[1] == ("lost", frozenset({T1}))

    run_virtual(main)
    assert "commit failed" not in caplog.text


def test_partitions_are_revoked_when_sync_meets_a_new_epoch() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4, "u": 2}, **QUICK) as cluster:
            listener, codes = Recorder(), []
            classic = ClassicConsumer(cluster, enable_auto_commit=False, **COOPERATIVE)
            classic.subscribe(["t"], listener=listener)
            other = MemoryConsumer(cluster, "u", group_protocol="consumer")

            async def subscribe_to_more(call: Call) -> Response | None:
                epoch = cluster.group("g").generation
                other.subscribe(["t", "u"])
                await cluster.wait_until(lambda: cluster.group("g").generation > epoch)
                response = await call.proceed()
                assert isinstance(response, SyncGroupResponse)
                codes.append(response.error_code)
                return response

            async with classic, polled(classic):
                cluster.on("SyncGroup", subscribe_to_more, keep=1)
                async with other, polled(other):
                    await cluster.wait_until(lambda: len(listener.calls) > 1, 30)
            assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
            assert "lost" not in listener.names

    run_virtual(main)
