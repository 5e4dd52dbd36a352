"""SIGTERM and SIGKILL end processes of a group under load, on the in-process cluster."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kohort.testing import Cluster
from tests.processing.killing import Workers, check_kills, run_kills

KILLS = 3
"""``tests/interop/test_killed_processing.py`` has the long form, on Apache Kafka."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_only_records_in_flight_at_a_kill_are_repeated(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Cluster(topics={"orders": 4}) as cluster:

        def produce() -> int:
            cluster.produce("orders", [(f"k{n % 40}", f"{n}") for n in range(200)])
            return 200

        def committed() -> dict[int, int]:
            return {tp.partition: at.offset for tp, at in cluster.committed("orders").items()}

        workers = Workers(tmp_path, cluster.bootstrap_servers, "orders")
        check_kills(run_kills(workers, number, KILLS, produce, committed))
        assert cluster.group("orders").members == ()
