"""Upper bounds of the time that a rebalance takes, on virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, polled
from tests.support.virtual import run_virtual

HEARTBEAT_S = 3.0


@pytest.mark.parametrize(
    ("strategy", "slack"), [("range", 0.1), ("cooperative-sticky", 0.2)], ids=lambda value: value
)
@pytest.mark.parametrize("phase", [0.1, 0.5, 0.9])
def test_second_member_gets_its_share_within_firsts_heartbeat(
    strategy: str, slack: float, phase: float
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 6}) as cluster:
            options: dict[str, Any] = {
                "heartbeat_interval_ms": round(HEARTBEAT_S * 1000),
                "partition_assignment_strategy": [strategy],
            }
            one = MemoryConsumer(cluster, "t", client_id="one", **options)
            async with one, polled(one):
                await anyio.sleep((10 + phase) * HEARTBEAT_S)
                started = anyio.current_time()
                async with MemoryConsumer(cluster, "t", client_id="two", seed=6, **options) as two:
                    await poll_for(two, lambda: len(one.assignment()) == len(two.assignment()) == 3)
                    assert anyio.current_time() - started <= HEARTBEAT_S + slack

    run_virtual(main)
