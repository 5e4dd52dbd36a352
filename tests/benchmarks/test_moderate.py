"""The readers and tables of benchmarks/moderate.py, on the in-process cluster."""

from __future__ import annotations

import pytest

from benchmarks import _moderate as ways
from benchmarks._moderate import Moderate
from benchmarks.moderate import BUSY, PARTITIONS, Load, goals, producing, read, table
from kohort.testing import Cluster
from tests.support.topics import create_topic


@pytest.mark.cases(1)  # each reads for seconds
@pytest.mark.parametrize("way", [ways.POLL, ways.ASYNC_FOR, ways.ARROW, ways.CONFLUENT_POLL])
def test_reader_measures_records_that_arrive(way: str) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        topic = create_topic(servers, "moderate", PARTITIONS)
        with producing(servers, topic, Load(200, 100)):
            result = read(way, servers, topic, 0.5)
    assert result.records >= result.calls > 0
    assert result.seconds >= 0.5
    assert 0 < result.p50_ms <= result.p99_ms


def test_goals_compare_with_confluent() -> None:
    results = {
        (BUSY, ways.POLL): [Moderate(100, 10, 2.0, 0.0011, 500, 9.0, 20.0)],
        (BUSY, ways.CONSUME): [Moderate(100, 1, 2.0, 0.0022, 900, 50.0, 90.0)],
    }
    rows = goals(results).splitlines()
    busy = f"| {BUSY.title} | "
    assert f"{busy}CPU of {ways.POLL}, us a record | 11 | 12 | 18 | reached |" in rows
    assert f"{busy}CPU of {ways.POLL} / confluent-kafka | 0.5 | 0.7 | 1 | reached |" in rows
    assert f"{busy}wake-ups of {ways.POLL} a second | 250 | 300 | 600 | reached |" in rows
    assert f"| {ways.CONSUME} | 22 | 450 | 100 | 50 | 90 |" in table(results, BUSY)
