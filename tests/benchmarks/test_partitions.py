"""The readers and tables of benchmarks/partitions.py, on the in-process cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from benchmarks._consumers import CONFLUENT, KOHORT, KOHORT_ASYNC
from benchmarks._partitions import BACKLOG, BUSY, Result
from benchmarks.partitions import BACKLOGS, Case, backlog_table, busy_table, fill, read
from kohort.testing import Cluster
from tests.support.topics import create_topic

PARTITIONS, RECORDS = 20, 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.cases(2)  # each is a process
@pytest.mark.parametrize("client", [KOHORT, KOHORT_ASYNC, CONFLUENT])
@pytest.mark.parametrize("way", [BUSY, BACKLOG])
def test_reader_measures_all_records(cluster: Cluster, client: str, way: str) -> None:
    servers = cluster.bootstrap_servers
    topic = create_topic(servers, f"{way}-{client.replace(' ', '-')}", PARTITIONS)
    fill(servers, topic, RECORDS if way == BACKLOG else 1)
    producer = Producer({"bootstrap.servers": servers})
    result = read(Case(client, way, PARTITIONS), servers, topic, RECORDS, producer)
    assert result.records == RECORDS
    assert result.seconds > 0
    assert (result.p50_ms > 0) is (way == BUSY)


def test_tables_judge_only_kohort() -> None:
    results = {
        Case(client, BACKLOG, number): [Result(number / 10, 0.1, 1000, 0.0)]
        for client in (KOHORT, CONFLUENT)
        for number in BACKLOGS
    }
    results |= {Case(client, BUSY, 1000): [Result(2.0, 0.4, 90, 12.0)] for client in (KOHORT,)}
    assert "| kohort | 20 | 12 | within the bound | within the bound |" in busy_table(results)
    [ours, theirs] = backlog_table(results).splitlines()[2:]
    assert ours.endswith("| no, no |")
    assert theirs.endswith("|  |")
