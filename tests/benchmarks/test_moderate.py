"""The readers and tables of benchmarks/moderate.py, on the in-process cluster."""

from __future__ import annotations

import pytest

from benchmarks._consumers import ARROW, ASYNC_FOR, CONSUME
from benchmarks._goals import goal_table
from benchmarks.moderate import (
    BUSY,
    CPU,
    FIGURES,
    P50,
    PARTITIONS,
    WAKEUPS,
    Load,
    goals,
    producing,
    read,
    way_table,
)
from kohort.testing import Cluster
from tests.support.topics import create_topic

POLL = "kohort poll()"


@pytest.mark.cases(1)  # each reads for seconds
@pytest.mark.parametrize("way", [POLL, ASYNC_FOR, ARROW, "confluent-kafka poll()"])
def test_reader_measures_records_that_arrive(way: str) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        topic = create_topic(servers, "moderate", PARTITIONS)
        with producing(servers, topic, Load(200, 100)):
            found = read(way, servers, topic, 0.5)
    assert found.keys() == set(FIGURES)
    assert min(found.values()) > 0
    assert found["records a call"] >= 1
    assert found["p50 ms"] <= found["p99 ms"]


def test_goals_compare_with_confluent() -> None:
    figures = {(BUSY, CONSUME, name): [50.0] for name in FIGURES}
    figures |= {(BUSY, POLL, CPU): [11.0], (BUSY, POLL, WAKEUPS): [250.0], (BUSY, POLL, P50): [9.0]}
    figures[BUSY, CONSUME, CPU] = [22.0]
    rows = goal_table(figures, goals()).splitlines()
    assert f"| {BUSY.title}: CPU of {POLL}, us a record | 11 | 12 | 18 | reached |" in rows
    ratio = f"CPU of {POLL} / confluent-kafka"
    assert f"| {BUSY.title}: {ratio} | 0.5 | 0.7 | 1 | reached |" in rows
    assert f"| {BUSY.title}: wake-ups of {POLL} a second | 250 | 300 | 600 | reached |" in rows
    del figures[BUSY, POLL, CPU]
    assert f"| {CONSUME} | 22 | 50 | 50 | 50 | 50 |" in way_table(figures, BUSY)
