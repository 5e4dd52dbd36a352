"""Queries that keep state in a group with other members, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import InvalidOptionError
from kohort.spark_connector import BatchEndListener
from kohort.spark_connector._offsets import StreamOffset
from kohort.spark_connector.member._member import Schedule, Task
from kohort.spark_connector.member._member_partitions import BatchView, ReadablePartition
from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, GROUP, Polling, committed, member, owned, plain
from tests.spark_connector.reading import Query, kept, produce

SHARED = "keeps state, and another member of group 'billing' has read orders-"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the reports of this test apart."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))


def report(query: Query) -> None:
    """Report the end of the latest batch and the state, as Spark does."""
    sources = [{"endOffset": json.loads(query.offset_log[-1])}]
    text = json.dumps({"sources": sources, "stateOperators": [{"operatorName": "dedupe"}]})
    listener: Any = BatchEndListener()
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=text, runId="run")))


def produce_everywhere(cluster: Cluster, count: int = 5) -> None:
    for partition in range(3):
        produce(cluster, count, partition=partition)


def with_state(cluster: Cluster, **given: object) -> Query:
    """Return a query that has read all partitions and whose checkpoint shows its state."""
    query = member(cluster, **given)
    for count in (5, 10):
        produce_everywhere(cluster)
        if query.reader is None:
            query.start()
        read_all(cluster, query, count)
        report(query)
    assert kept(json.loads(query.offset_log[-1]))["state"] is True
    cluster.wait_until(lambda: committed(cluster) == {0: 10, 1: 10, 2: 10}, DEADLINE)
    return query


def read_all(cluster: Cluster, query: Query, count: int) -> None:
    """Trigger until the query has read this many records of each partition.

    The ends of some partitions may be known later than those of others.
    """

    def is_read() -> bool:
        query.trigger()
        return len(query.values()) == 3 * count

    cluster.wait_until(is_read, DEADLINE)


def trigger_until_error(cluster: Cluster, query: Query) -> str:
    """Trigger until the source raises. Return the error's text."""
    found = ""

    def raises() -> bool:
        nonlocal found
        try:
            query.trigger()
        except InvalidOptionError as error:
            found = str(error)
        return bool(found)

    cluster.wait_until(raises, DEADLINE)
    return found


def test_query_with_state_fails_when_a_consumer_reads_too(cluster: Cluster) -> None:
    query = with_state(cluster)
    with Polling(plain(cluster, auto_commit_interval_ms=100)) as other:
        cluster.wait_until(lambda: not query.trigger() and other.assigned, DEADLINE)
        produce_everywhere(cluster)
        cluster.wait_until(lambda: other.values, DEADLINE)
        assert SHARED in trigger_until_error(cluster, query)
    query.stop()


def schedule(query: Query) -> Schedule:
    found: Schedule = query.reader._driver._member._schedule
    return found


def test_query_with_state_fails_when_it_looks_after_a_consumer_has_read(cluster: Cluster) -> None:
    query = with_state(cluster)
    schedule(query).postpone(Task.OTHERS, 1e6)
    with Polling(plain(cluster, auto_commit_interval_ms=100)) as other:
        cluster.wait_until(lambda: not query.trigger() and other.assigned, DEADLINE)
        produce_everywhere(cluster)
        cluster.wait_until(lambda: 15 in committed(cluster).values(), DEADLINE)
        schedule(query).make_due(Task.OTHERS)
        assert SHARED in trigger_until_error(cluster, query)
    query.stop()


def test_query_with_state_fails_when_a_partition_returns_that_a_consumer_has_read(
    cluster: Cluster,
) -> None:
    query = with_state(cluster)
    schedule(query).postpone(Task.OTHERS, 1e6)
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: not query.trigger() and other.assigned, DEADLINE)
        produce_everywhere(cluster)
        cluster.wait_until(lambda: other.values, DEADLINE)
    assert SHARED in trigger_until_error(cluster, query)
    query.stop()


def test_query_with_state_fails_before_it_reads_when_restarted(cluster: Cluster) -> None:
    query, other = with_state(cluster), member(cluster)
    query.stop()
    produce_everywhere(cluster)
    other.run_available_now()
    before = len(query.batches)
    query.start()
    assert SHARED in trigger_until_error(cluster, query)
    query.stop()
    assert len(query.batches) == before

    query.change(**{"kafka.group.id": "sums"})
    query.run_available_now()
    assert len(query.values()) == 3 * 15


def test_query_with_state_warns_once_of_offsets_of_a_client_before_its_start(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be a reset by a user, so they are no error."""
    query = with_state(cluster)
    query.stop()
    produce_everywhere(cluster)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as other:
        other.commit({TopicPartition("orders", 0): 13})
    query.start()
    read_all(cluster, query, 14)
    query.stop()
    assert caplog.text.count("its state lacks the records") == 1
    assert "orders-0 10 to 12." in caplog.text


def test_other_reader_of_a_recreated_topic_is_seen(cluster: Cluster) -> None:
    query = with_state(cluster)
    driver, tp = query.reader._driver, TopicPartition("orders", 0)
    assert tp in driver._read_partitions
    start = StreamOffset({}, {}, {}, "ours")  # without the partitions of the former topic

    def check(offset: int) -> None:
        others = {tp: ReadablePartition(0, offset, "")}
        driver._check_sole_reader(BatchView({}, {}, {}, {}, others, None, False), start)

    check(3)
    check(3)
    with pytest.raises(InvalidOptionError, match="has read orders-0 up to offset 5"):
        check(5)
    query.stop()


def test_query_with_state_goes_on_beside_member_without_commits(cluster: Cluster) -> None:
    query = with_state(cluster)
    with Polling(plain(cluster, enable_auto_commit=False)) as other:
        cluster.wait_until(lambda: not query.trigger() and len(owned(query)) < 3, DEADLINE)
        cluster.wait_until(lambda: query.reader._driver._partitions._others, DEADLINE)
        assert not query.trigger()
        cluster.wait_until(lambda: other.assigned, DEADLINE)
    cluster.wait_until(lambda: not query.trigger() and len(owned(query)) == 3, DEADLINE)
    produce_everywhere(cluster)
    read_all(cluster, query, 15)
    query.stop()


def test_query_without_state_shares_its_group(cluster: Cluster) -> None:
    query, other = member(cluster), member(cluster)
    produce_everywhere(cluster)
    query.run_available_now()
    produce_everywhere(cluster)
    other.run_available_now()
    query.run_available_now()
    assert len(query.values()) == len(other.values()) == 3 * 5
