"""The calls of Python functions for one fetch and its drain, which decide its cost."""

from __future__ import annotations

import sys
from types import FrameType

import anyio

from kohort.types import TopicPartition
from tests.fetcher.fake import Consumer, FakeCluster
from tests.fetcher.making import batch, owning
from tests.support.virtual import run_virtual_on

FEW, MANY = 4, 24
CYCLES = 5
MOST_CALLS = 95
"""Calls for each partition of a response, of which the fake cluster makes about ten."""


def calls_of(partitions: int) -> int:
    """Return the calls of some cycles, in which each partition gets a record."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def main() -> None:
        cluster = FakeCluster()
        owned = [TopicPartition("t", number) for number in range(partitions)]
        for tp in owned:
            cluster.add(tp)
        consumer = Consumer(cluster, owning(*owned))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.fetcher.run)
            for number in range(2 * CYCLES):
                await anyio.sleep(0.1)
                data = batch(number, 1)
                for tp in owned:
                    cluster.logs[tp].append(number + 1, data)
                if number == CYCLES:
                    sys.setprofile(count)
                cluster.produce(owned[0], number + 1)
                drained = await consumer.poll()
                assert len(drained) == partitions
            sys.setprofile(None)
            tasks.cancel_scope.cancel()
        consumer.fetcher.close()

    try:
        run_virtual_on("asyncio", main)
    finally:
        sys.setprofile(None)
    return calls


def test_a_partition_of_a_response_costs_few_calls() -> None:
    per_partition = (calls_of(MANY) - calls_of(FEW)) / (MANY - FEW) / CYCLES
    assert per_partition < MOST_CALLS
