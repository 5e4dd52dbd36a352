"""Share consumers of others on the in-process cluster, unchanged."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ShareConsumer

from kohort.testing import Cluster
from kohort.types import TopicPartition
from tests.support.java_tools import run_tool

CONFIGS = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
}
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
JOBS = [f"job {n}" for n in range(20)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"jobs": 2}, configs=CONFIGS) as running:
        running._read(
            lambda state: state.configs.groups.change(
                "workers", {"share.auto.offset.reset": "earliest"}
            )
        )
        running.produce("jobs", JOBS)
        yield running


def test_confluent_kafka_takes_each_job_once(cluster: Cluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "workers"}
    consumer = ShareConsumer(settings)
    consumer.subscribe(["jobs"])
    values: list[str] = []
    deadline = time.monotonic() + 60
    while len(values) < len(JOBS) and time.monotonic() < deadline:
        for message in consumer.poll(1.0) or ():
            assert message.error() is None
            values.append((message.value() or b"").decode())
    assert sorted(values) == sorted(JOBS)
    state = cluster.share_state("workers")
    assert sum(len(partition.locks) for partition in state.values()) <= len(JOBS)
    assert set(consumer.commit_sync(timeout=60).values()) == {None}
    state = cluster.share_state("workers")
    assert {partition.start for partition in state.values()} == {10}
    consumer.close()
    assert cluster.group("workers").state == "Empty"


@pytest.mark.real_kafka
@pytest.mark.long
def test_java_consumes_and_administers_a_queue(cluster: Cluster) -> None:
    servers = "--bootstrap-server", cluster.bootstrap_servers
    named = "--group", "workers"
    of_jobs = *named, "--topic", "jobs"
    printed = run_tool(
        CONSOLE, *servers, *of_jobs, "--max-messages", len(JOBS), "--timeout-ms", 60_000
    )
    assert sorted(printed.splitlines()) == sorted(JOBS)
    assert cluster.share_state("workers")[TopicPartition("jobs", 1)].start == 10
    described = run_tool(GROUPS, *servers, "--describe", *named)
    lines = [line.split() for line in described.splitlines() if "jobs" in line]
    assert [(words[2], words[4]) for words in lines] == [("0", "0"), ("1", "0")]
    run_tool(GROUPS, *servers, "--reset-offsets", *of_jobs, "--to-earliest", "--execute")
    assert run_tool(GROUPS, *servers, "--list").split() == ["workers"]
    printed = run_tool(
        CONSOLE, *servers, *of_jobs, "--max-messages", len(JOBS), "--timeout-ms", 60_000
    )
    assert sorted(printed.splitlines()) == sorted(JOBS)
    run_tool(GROUPS, *servers, "--delete", *named)
    assert cluster.group("workers").state == "Dead"
