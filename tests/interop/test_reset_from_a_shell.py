"""``kohort groups reset`` by each form of ``--to``, on the in-process cluster and on Apache Kafka.

confluent-kafka commits and reads the offsets.
"""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from kohort import KafkaConsumer
from kohort.cli import main
from tests.interop.brokers import QUIET, Broker
from tests.interop.waiting import wait_until

MINUTES = 10
AT = 5
"""The offset that the group has committed."""


class Group:
    """A group with an offset in a topic that has a record for each of the last ten minutes."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.topic = broker.create_topic(name)
        self.now = time.time()
        for minute in range(MINUTES, 0, -1):
            broker.write(self.topic, b"x", timestamp=int((self.now - 60 * minute) * 1000))
        self.commit(AT)

    def commit(self, offset: int) -> None:
        options = {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": self.name}
        consumer = Consumer({**options, **QUIET})
        place = ConfluentPartition(self.topic, 0, offset)

        def is_stored() -> bool:
            try:
                consumer.commit(offsets=[place], asynchronous=False)
            except KafkaException:  # a new broker loads its coordinator
                return False
            return True

        wait_until(is_stored)
        consumer.close()

    @property
    def offset(self) -> int:
        return self.broker.committed(self.name)[self.topic, 0]

    def run(self, *words: str) -> int:
        return main(["groups", *words, "--bootstrap-servers", self.broker.bootstrap_servers])

    def after(self, minutes: float) -> str:
        """Return the time ``minutes`` before the records were written, as an argument."""
        when = datetime.fromtimestamp(self.now, UTC) - timedelta(minutes=minutes)
        return when.isoformat()

    def ago(self, minutes: float) -> str:
        """Return the same as a time ago, whatever time has passed since."""
        return f"-{round(time.time() - self.now + 60 * minutes)}s"


@pytest.fixture
def group(quick_broker: Broker) -> Group:
    return Group(quick_broker, f"reset-{time.time_ns()}")


def test_each_target_shows_a_plan_is_carried_out_and_undone(
    group: Group, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    assert group.run("reset", group.name, "--to", "1", "--save", plan) == 0
    for target, expected in (
        ("earliest", 0),
        ("latest", MINUTES),
        ("3", 3),
        ("+2", AT + 2),
        ("-2", AT - 2),
        (group.ago(2.5), MINUTES - 2),
        ("-1h", 0),
        (group.after(7.5), MINUTES - 7),
        (group.after(0).replace("+00:00", "Z"), MINUTES),
        (f"{group.topic}:0=8", 8),
        (f"@{plan}", 1),
    ):
        capsys.readouterr()
        assert group.run("reset", group.name, "--to", target) == 0
        assert group.offset == AT
        shown = capsys.readouterr().out.splitlines()[1].split()
        assert shown[:3] == [f"{group.topic}:0", str(AT), str(expected)], target
        assert group.run("reset", group.name, "--to", target, "--execute") == 0
        assert group.offset == expected
        undo = re.search(r"^Undo: kohort groups (.*)$", capsys.readouterr().out, re.MULTILINE)
        assert undo is not None
        assert group.run(*shlex.split(undo[1])) == 0
        assert group.offset == AT


def test_commit_between_plan_and_execution_is_noticed(
    group: Group, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    assert group.run("reset", group.name, "--to", "earliest", "--save", plan) == 0
    group.commit(AT + 1)
    assert group.run("reset", group.name, "--to", f"@{plan}", "--execute") == 3
    assert "the plan has other offsets" in capsys.readouterr().err
    assert group.offset == AT + 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.cases
def test_reset_is_refused_until_the_last_member_has_left(
    group: Group, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    words = ("reset", group.name, "--to", "earliest")
    with KafkaConsumer(
        group.topic,
        bootstrap_servers=group.broker.bootstrap_servers,
        group_id=group.name,
        group_protocol="classic" if protocol == "classic" else "consumer",
        client_id="worker-1",
        enable_auto_commit=False,
    ) as consumer:
        wait_until(lambda: consumer.poll(timeout_ms=50) is not None and consumer.assignment())
        assert group.run(*words) == 0
        assert "Stop these clients first: worker-1" in capsys.readouterr().out
        assert group.run(*words, "--execute") == 3
        assert "worker-1" in capsys.readouterr().err
        assert group.offset == AT
    assert group.run(*words, "--execute") == 0
    assert group.offset == 0
