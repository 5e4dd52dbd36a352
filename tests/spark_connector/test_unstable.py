"""Streams over partitions without a leader, and over open transactions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kohort import KafkaConsumer, KafkaTimeoutError, TopicPartition
from kohort.spark_connector import _group_driver, _stream_driver
from kohort.spark_connector.member import _member
from kohort.spark_connector.member._member_partitions import ReadablePartition
from kohort.testing import Cluster
from tests.spark_connector.members import GROUP, committed, member, member_options
from tests.spark_connector.reading import Query, open_transaction, options, produce, read_batch

DEADLINE = 90.0
ORDERS = TopicPartition("orders", 0)
AHEAD = '{"orders": {"0": 10, "1": 0, "2": 0}}'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_stream_driver, _member):
        monkeypatch.setattr(module, "LOOK_UP_MS", 500)
    monkeypatch.setattr(_group_driver, "REBALANCE_MARGIN_S", 5.0)


@contextmanager
def one_without_a_leader() -> Iterator[tuple[Cluster, int]]:
    """Run two brokers with a partition each.

    Yield the cluster and the number of the partition for a test to kill.
    """
    with Cluster(brokers=2, topics={"orders": 2}, replication_factor=1) as cluster:
        for partition in range(2):
            produce(cluster, 5, partition=partition)
        dead = 1 if cluster.coordinator(GROUP) == cluster.leader("orders", 0) else 0
        yield cluster, dead


@pytest.mark.parametrize("chosen", [options, member_options])
def test_partition_without_a_leader_does_not_delay_the_others(chosen: type) -> None:
    with one_without_a_leader() as (cluster, dead):
        query = Query(chosen(cluster, startingOffsets="earliest"))
        query.start()
        cluster.wait_until(lambda: query.trigger() or len(query.values()) == 10, DEADLINE)
        cluster.kill_broker(cluster.leader("orders", dead))
        expected = produce(cluster, 3, partition=1 - dead)
        cluster.wait_until(lambda: query.trigger() or len(query.values()) == 13, DEADLINE)
        assert query.values()[10:] == expected
        query.stop()


def test_available_now_fails_if_it_cannot_read_everything() -> None:
    with one_without_a_leader() as (cluster, dead):
        cluster.kill_broker(cluster.leader("orders", dead))
        query = member(cluster, rebalanceWait="1s")
        with pytest.raises(KafkaTimeoutError, match=f"orders-{dead}"):
            query.run_available_now()
        query.stop()


def test_a_group_ahead_of_an_open_transaction_is_no_loss(cluster: Cluster) -> None:
    query = member(cluster, kafka_isolation_level="read_committed", failOnDataLoss=False)
    first = produce(cluster, 5)
    query.run_available_now()
    producer, _ = open_transaction(cluster, 5)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as other:
        other.commit({ORDERS: 10})
    query.run_available_now()
    assert query.values() == first
    assert committed(cluster)[0] == 10
    chosen = options(cluster, kafka_isolation_level="read_committed", startingOffsets=AHEAD)
    assert read_batch(chosen) == []
    producer.commit_transaction(20)
    last = produce(cluster, 2)
    query.run_available_now()
    assert query.values() == first + last


def test_restarted_query_awaits_partitions_before_it_is_empty(
    cluster: Cluster,
) -> None:
    """For a query with ``trigger(once=True)`` this one response is the whole run."""
    produce(cluster, 5)
    query = member(cluster)
    query.run_available_now()
    expected = produce(cluster, 3)
    query.start()
    assert query.trigger()
    query.stop()
    assert query.values()[5:] == expected


def test_trigger_includes_records_written_before_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unchanged offset, processAllAvailable() takes everything as read."""
    monkeypatch.setattr(_group_driver, "NEW_ENDS_S", DEADLINE)
    query = member(cluster)
    query.start()
    query.trigger()
    for _ in range(5):
        assert not query.trigger()
        produce(cluster, 1)
        assert query.trigger()
    query.stop()


def test_trigger_includes_them_beside_members_that_commit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_group_driver, "NEW_ENDS_S", DEADLINE)
    query = member(cluster)
    query.start()
    query.trigger()
    over = threading.Event()

    def let_others_commit() -> None:
        for offset in itertools.count():
            query.reader._driver._partitions.set_others({ORDERS: ReadablePartition(0, offset, "")})
            if over.wait(0.005):
                return

    others = threading.Thread(target=let_others_commit)
    others.start()
    try:
        for _ in range(5):
            assert not query.trigger()
            produce(cluster, 1)
            assert query.trigger()
    finally:
        over.set()
        others.join()
    query.stop()
