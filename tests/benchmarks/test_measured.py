"""The meters of consumers, on the in-process cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks._consumers import CONFLUENT, KOHORT, KOHORT_ASYNC
from benchmarks._goals import goal_table
from benchmarks._measured import Task
from benchmarks._program import measured
from benchmarks._topics import Shape, fill, text
from benchmarks.latency import CPU, new_topic
from benchmarks.partitions import (
    BACKLOG,
    BACKLOGS,
    GOALS,
    LATENCY,
    Case,
    Figures,
    backlog_table,
    busy_table,
    read_backlog,
    read_busy,
)
from kohort.testing import Cluster

PARTITIONS, RECORDS = 20, 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize("client", [KOHORT, KOHORT_ASYNC, CONFLUENT])
def test_idle_consumers_are_measured_when_all_are_ready(cluster: Cluster, client: str) -> None:
    servers = cluster.bootstrap_servers
    task = Task("idle", client, servers, new_topic(servers), seconds=0.1, consumers=3)
    found = measured(task)
    assert found["ready_ms"] > 0 and found["mb"] > 5
    assert found["cpu_percent"] >= 0


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize("client", [KOHORT, KOHORT_ASYNC, CONFLUENT])
def test_latency_and_cpu_of_single_records_are_measured(cluster: Cluster, client: str) -> None:
    found = read_busy(Case(client, "busy", PARTITIONS), cluster.bootstrap_servers, 0.3)
    assert found[CPU] > 0 and found[LATENCY] > 0


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize("client", [KOHORT, KOHORT_ASYNC, CONFLUENT])
def test_rate_of_a_backlog_in_one_partition_is_measured(cluster: Cluster, client: str) -> None:
    servers, topic = cluster.bootstrap_servers, f"backlog-{client.replace(' ', '-')}"
    filled = fill(servers, Shape(topic, "", 1000, text(100)), 1, PARTITIONS, used=1)
    with_records = {each.partition for each in cluster.records(topic)}
    assert with_records == {0}
    found = read_backlog(Case(client, BACKLOG, PARTITIONS), servers, topic, filled.records)
    assert found[PARTITIONS] > 0


def test_only_figures_of_kohort_have_goals() -> None:
    figures: Figures = {
        (client, number): [10.0 * rank]
        for client in (KOHORT, CONFLUENT)
        for rank, number in zip((3, 2, 1), BACKLOGS, strict=True)
    }
    figures |= {(KOHORT, CPU): [20.0], (KOHORT, LATENCY): [12.0]}
    assert "| kohort | 20 | 12 |" in busy_table(figures, [KOHORT])
    rows = backlog_table(figures, [KOHORT, CONFLUENT]).splitlines()[2:]
    assert [row.partition(" | ")[2] for row in rows] == ["30 | 20 | 10 | 0.667 | 0.333 |"] * 2
    assert goal_table(figures, GOALS).splitlines()[2:] == [
        "| kohort, CPU, % | 20 | 15 | 25 | above the floor |",
        "| kohort, p50, ms | 12 | 11 | 15 | above the floor |",
        "| kohort, rate of 1,000 : 10 | 0.667 | 0.8 | 0.6 | above the floor |",
        "| kohort, rate of 2,000 : 10 | 0.333 | 0.7 | 0.5 | **below the floor** |",
    ]
