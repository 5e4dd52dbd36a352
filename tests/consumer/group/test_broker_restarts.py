"""A broker that restarts is no reason for a group with racks to rebalance."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, polled
from tests.support.virtual import run_virtual


@pytest.mark.parametrize(
    "assignor", ["range", "roundrobin", "sticky", "cooperative-sticky", "of the broker"]
)
@pytest.mark.parametrize("away_first", [False, True])
def test_broker_restart_begins_no_rebalance(assignor: str, away_first: bool) -> None:
    options: dict[str, Any] = {"group_protocol": "consumer"}
    if assignor != "of the broker":
        options = {"group_protocol": "classic", "partition_assignment_strategy": [assignor]}

    async def main() -> None:
        async with MemoryCluster(
            brokers=3, racks=["a", "b", "c"], topics={"t": 6}, seed=3
        ) as cluster:
            away = next(n for n in (3, 2) if n != cluster.coordinator("g"))
            if away_first:
                cluster.kill_broker(away)
            members = [
                MemoryConsumer(
                    cluster,
                    "t",
                    client_rack=rack,
                    metadata_max_age_ms=500,
                    **options,
                )
                for rack in "ab"
            ]
            one, two = members
            async with one, polled(one), two, polled(two):
                await cluster.wait_until(
                    lambda: all(len(member.assignment()) == 3 for member in members), 60
                )
                await anyio.sleep(10)
                generation = cluster.group("g").generation
                if not away_first:
                    cluster.kill_broker(away)
                    await anyio.sleep(5)
                cluster.start_broker(away)
                await anyio.sleep(5)
                assert cluster.group("g").generation == generation

    run_virtual(main)
