"""The measured programs and the goals of benchmarks/process.py, on the in-process cluster."""

from __future__ import annotations

import pytest

from benchmarks import process
from benchmarks._goals import goal_table
from benchmarks._processed import BATCHES, LOOP, TABLES, TASKS, THREADS
from benchmarks._topics import Filled
from kohort.testing import Cluster

RECORDS = 40


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize("order", process.ORDERS, ids=lambda order: order.text)
@pytest.mark.parametrize("runtime", [THREADS, TASKS])
def test_an_order_takes_at_least_its_ideal_time(runtime: str, order: process.Order) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        topics = process.write_all(servers, RECORDS)
        found = process.measured_order((runtime, order), servers, topics, [], RECORDS)
    assert found[process.SECONDS] >= process.ideal_s(order, RECORDS)


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize("name", process.COSTS)
def test_a_cost_is_measured(name: str) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        rows = ((number, 0) for number in range(RECORDS))
        busy = Filled(process.write(servers, "busy", 2, rows), RECORDS, 0)
        assert process.measured_cost(name, servers, busy, busy)[process.CPU] > 0


def test_goals_compare_with_the_ideal_and_a_bare_loop() -> None:
    ours, ideal = ((name, process.TEN) for name in (THREADS, process.IDEAL))
    figures = {(ours, process.SECONDS): [2.6], (ideal, process.SECONDS): [2.5]}
    costs = {(TABLES, process.CPU): [2.0], (BATCHES, process.CPU): [2.08], ("over", "key"): [1.2]}
    rows = goal_table({**figures, **costs}, process.goals()).splitlines()[2:]
    assert rows == [
        f"| {THREADS}, key, 10 keys / ideal | 1.04 | 1.1 | 1.15 | reached |",
        f"| key over {LOOP}, us a record | 1.2 | 1.5 | 2.5 | reached |",
        f"| {BATCHES} / {TABLES} | 1.04 | 1 | 1.05 | above the floor |",
    ]
