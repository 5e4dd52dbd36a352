"""Batches that ``on_error="skip"`` skips, with a later leader epoch than the records read."""

from __future__ import annotations

import anyio
import pytest

from kohort import TopicPartition
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("spoilt", ["oversized", "corrupt"])
def test_a_skipped_batch_is_no_truncation_when_leaders_move(spoilt: str) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=3, topics={"t": 1}) as cluster:
            cluster.produce("t", [b"first"])
            async with MemoryConsumer(
                cluster,
                "t",
                on_error="skip",
                receive_message_max_bytes=100_000,
                fetch_max_bytes=60_000,
                max_partition_fetch_bytes=30_000,
            ) as consumer:
                assert await values(consumer, 1) == [b"first"]
                cluster.move_leader("t", 0, cluster.leader("t", 0) % 3 + 1)
                cluster.produce("t", [b"x" * (150_000 if spoilt == "oversized" else 10)])
                if spoilt == "corrupt":
                    cluster.corrupt(T0, 1)
                with anyio.fail_after(60):
                    while await consumer.position(T0) < 2:
                        assert not await consumer.poll(timeout_ms=100)
                cluster.move_leader("t", 0, cluster.leader("t", 0) % 3 + 1)
                cluster.produce("t", [b"last"])
                assert await values(consumer, 1) == [b"last"]

    run_virtual(main)
