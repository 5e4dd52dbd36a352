"""A rebalance between two records of an iteration, with many records buffered."""

from __future__ import annotations

import anyio

from kohort.testing import Cluster, MemoryCluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual_on

RECORDS = 400
"""Number of records. The first fetch returns all of them."""
STEPS = 30
"""Number of records with a pause after each. A rebalance takes a few heartbeats."""


def test_a_rebalance_goes_on_between_two_records(anyio_backend: str) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 2}) as cluster,
            anyio.create_task_group() as tasks,
        ):
            cluster.produce("t", [str(n) for n in range(RECORDS)], partition=0)
            seen: list[int] = []

            async def read() -> None:
                async with MemoryConsumer(cluster, "t", seed=1) as consumer:
                    while True:
                        record = await anext(consumer)
                        seen.append(record.offset)
                        await anyio.sleep(1)

            tasks.start_soon(read)
            await cluster.wait_until(lambda: len(seen) > 1, 10)
            with anyio.fail_after(STEPS):
                async with MemoryConsumer(cluster, "t", seed=2) as second:
                    assert len(second.assignment()) == 1
            tasks.cancel_scope.cancel()
            assert seen == list(range(len(seen)))
            assert len(seen) < STEPS

    run_virtual_on(anyio_backend, main)


def test_the_sync_face_rebalances_between_two_records(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    first, second = make(group_id=group, consumer_timeout_ms=50), make(group_id=group)
    cluster.produce(topic, [str(n) for n in range(RECORDS)], partition=0)
    first.subscribe([topic])
    seen = 0
    while not seen:
        seen += next(first, None) is not None
    second.subscribe([topic])
    while not second.assignment() and seen < RECORDS:
        second.poll(timeout_ms=50)
        seen += next(first, None) is not None
    assert seen < RECORDS, "the group waited for the buffered records"
