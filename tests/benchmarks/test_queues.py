"""The members and goals of benchmarks/queues.py, on the in-process cluster."""

from __future__ import annotations

import pytest

from benchmarks._consumers import CONFLUENT, KOHORT, KOHORT_ASYNC
from benchmarks._goals import goal_table
from benchmarks._names import JAVA
from benchmarks._program import command_of, run_command
from benchmarks._queue import EXPLICIT, IMPLICIT
from benchmarks._reading import Reading
from benchmarks._topics import PLAIN, SHAPES, fill
from benchmarks.queues import CPU, RATE, checked, goals
from kohort.testing import Cluster

TITLE = "100 B, implicit"


@pytest.mark.cases(1)  # each is a process
@pytest.mark.parametrize(
    ("client", "mode", "members"),
    [(KOHORT, EXPLICIT, 2), (KOHORT_ASYNC, IMPLICIT, 2), (CONFLUENT, EXPLICIT, 1)],
)
def test_members_take_each_record_once(client: str, mode: str, members: int) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        filled = fill(servers, SHAPES[PLAIN], 0.001)
        cluster._read(
            lambda state: state.configs.groups.change(
                "group", {"share.auto.offset.reset": "earliest"}
            )
        )
        words = servers, filled.topic, "group", filled.records, mode, members
        reading = Reading(**run_command(command_of("_queue", client, *words)))
    assert checked(client, reading, filled).rate > 0


def test_goals_compare_with_java_and_confluent() -> None:
    figures = {
        ((TITLE, KOHORT), RATE): [110.0],
        ((TITLE, JAVA), RATE): [100.0],
        ((TITLE, KOHORT), CPU): [1.0],
        ((TITLE, CONFLUENT), CPU): [2.0],
    }
    rows = goal_table(figures, goals()).splitlines()
    assert f"| {TITLE}: {RATE} of {KOHORT} / {JAVA} | 1.1 | 1 | 0.8 | reached |" in rows
    assert f"| {TITLE}: {CPU} of {KOHORT} / {CONFLUENT} | 0.5 | 0.67 | 1 | reached |" in rows
    assert len(rows) == 4
