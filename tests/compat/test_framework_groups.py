"""docs/migration.md: groups of frameworks on confluent-kafka lose nothing. Skipped without them.

``pip install sentry-arroyo quixstreams apache-airflow-providers-apache-kafka``. They need different
versions of confluent-kafka, so each is tried in another environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kohort.testing import Cluster
from tests.interop.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LIMIT_S = 240.0
MEMBER = """
import os, signal, sys

import kohort.compat.confluent

kohort.compat.confluent.install()
servers, out = sys.argv[1], open(sys.argv[2], "a", buffering=1)
"""
ARROYO = """
from arroyo.backends.kafka import KafkaConsumer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, RunTask
from arroyo.processing.strategies.abstract import ProcessingStrategyFactory
from arroyo.types import Topic

def note(message):
    print(int(message.payload.value), file=out)

class Factory(ProcessingStrategyFactory):
    def create_with_partitions(self, commit, partitions):
        return RunTask(note, CommitOffsets(commit))

options = build_kafka_consumer_configuration(
    {"session.timeout.ms": 6000},
    bootstrap_servers=[servers],
    group_id="billing",
    auto_offset_reset="earliest",
)
processor = StreamProcessor(KafkaConsumer(options), Topic("orders"), Factory(), ONCE_PER_SECOND)
signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
processor.run()
"""
QUIX = """
from quixstreams import Application

app = Application(
    broker_address=servers,
    consumer_group="billing",
    auto_offset_reset="earliest",
    processing_guarantee=GUARANTEE,
    commit_interval=1.0,
    consumer_extra_config={"session.timeout.ms": 6000},
    auto_create_topics=False,
    use_changelog_topics=False,
)

def note(value):
    print(value, file=out)
    return value

frame = app.dataframe(app.topic("orders", value_deserializer="string"))
frame.apply(note).to_topic(app.topic("copies", value_serializer="string"))
app.run()
"""
AIRFLOW = """
import json

os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps({
    "conn_type": "kafka",
    "extra": {
        "bootstrap.servers": servers,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    },
})
from airflow.providers.apache.kafka.hooks.consume import KafkaConsumerHook

ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
with KafkaConsumerHook(["orders"], "kafka_default").get_consumer() as consumer:
    while not ended:
        messages = consumer.consume(100, 1.0)
        for message in messages:
            print(int(message.value()), file=out)
        if messages:
            consumer.commit(asynchronous=False)
"""


class Members:
    """Processes of one group, and the numbers that they have read."""

    def __init__(self, code: str, servers: str, folder: Path) -> None:
        self._code = MEMBER + code
        self._servers = servers
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start another member."""
        number = len(self.processes)
        command = [sys.executable, "-c", self._code, self._servers, f"{number}.txt"]
        environment = {**os.environ, "AIRFLOW_HOME": str(self._folder)}
        with (self._folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=log, stderr=log
            )
        self.processes.append(process)

    def read(self) -> Counter[int]:
        """Return how often each number was read."""
        texts = [path.read_text() for path in self._folder.glob("*.txt")]
        return Counter(int(line) for text in texts for line in text.split("\n")[:-1])

    def wait_for(self, count: int) -> None:
        """Wait until this many different numbers were read."""
        wait_until(
            lambda: len(self.read()) >= count,
            explain=lambda: [path.read_text()[-2000:] for path in self._folder.glob("*.log")],
            deadline_s=LIMIT_S,
        )


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("arroyo", ARROYO),
        ("quixstreams", QUIX.replace("GUARANTEE", "'at-least-once'")),
        ("quixstreams", QUIX.replace("GUARANTEE", "'exactly-once'")),
        ("airflow.providers.apache.kafka", AIRFLOW),
    ],
    ids=["arroyo", "Quix at least once", "Quix exactly once", "Airflow"],
)
def test_group_of_a_framework_loses_nothing(module: str, code: str, tmp_path: Path) -> None:
    pytest.importorskip(module)
    with Cluster(topics={"orders": 6, "copies": 6}) as cluster:
        members = Members(code, cluster.bootstrap_servers, tmp_path)
        try:
            cluster.produce("orders", [str(number) for number in range(5_000)])
            members.start()
            members.wait_for(100)
            members.start()
            cluster.produce("orders", [str(number) for number in range(5_000, 7_000)])
            members.wait_for(6_000)
            members.processes[0].kill()
            cluster.produce("orders", [str(number) for number in range(7_000, 10_000)])
            members.wait_for(10_000)
            members.processes[1].terminate()
            assert members.processes[1].wait(LIMIT_S) in (0, -15)
        finally:
            for process in members.processes:
                process.kill()
                process.wait()
        assert sum(at.offset for at in cluster.committed("billing").values()) == 10_000
