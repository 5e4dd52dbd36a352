"""Streams that read all partitions without membership, and commit to a group."""

from __future__ import annotations

import json
import logging

import pytest

from kohort import TopicPartition
from kohort.errors import InvalidOptionError
from kohort.spark_connector.options._options import SourceOptions
from kohort.testing import Cluster
from tests.spark_connector.members import DEADLINE, GROUP, Polling, committed, plain
from tests.spark_connector.reading import Query, kept, options, produce


def commit_only(cluster: Cluster, **given: object) -> Query:
    """Return a query that commits to the group."""
    chosen = {"kafka_group_id": GROUP, "commitOnly": True, "startingOffsets": "earliest"}
    return Query(options(cluster, **(chosen | given)))


def test_finished_batches_are_committed_without_membership(cluster: Cluster) -> None:
    first = produce(cluster, 5)
    query = commit_only(cluster)
    query.start()
    assert query.trigger()
    assert committed(cluster) == {}  # Spark has not finished the batch
    assert not query.trigger()
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}
    assert not cluster.group(GROUP).members
    checkpoint = kept(json.loads(query.offset_log[-1]))["query"]
    found = cluster.committed(GROUP).values()
    assert {each.metadata for each in found} == {f"kohort/{checkpoint}"}
    second = produce(cluster, 3, partition=1)
    cluster.wait_until(query.trigger, DEADLINE)
    query.stop()
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}
    assert query.values() == first + second


@pytest.mark.parametrize("subscription", ["subscribe", "assign"])
def test_available_now_commits_its_last_batch(cluster: Cluster, subscription: str) -> None:
    expected = produce(cluster, 9)
    given = {"assign": '{"orders":[0]}'} if subscription == "assign" else {}
    query = commit_only(cluster, maxOffsetsPerTrigger=4, **given)
    query.run_available_now()
    assert query.values() == expected
    assert committed(cluster)[0] == 9


def test_two_queries_read_all_and_checkpoint_decides(cluster: Cluster) -> None:
    """The offsets of the group are only shown. They decide nothing."""
    expected = produce(cluster, 5)
    first, second = commit_only(cluster), commit_only(cluster)
    for query in (first, second):
        query.run_available_now()
        assert query.values() == expected
    late = commit_only(cluster, startingOffsets="committed")
    more = produce(cluster, 2)
    late.run_available_now()
    assert late.values() == more


def test_refused_commit_is_logged_and_query_goes_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    expected = produce(cluster, 5)
    query = commit_only(cluster)
    with plain(cluster, enable_auto_commit=False) as consumer, Polling(consumer) as member:
        cluster.wait_until(lambda: len(member.assigned) == 3, DEADLINE)
        with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
            query.run_available_now()
        assert query.values() == expected
        assert committed(cluster) == {}
    assert "[billing] a commit failed and will be retried" in caplog.text
    query.run_available_now()
    assert committed(cluster)[0] == 5


def test_recreated_topic_gets_no_commit_of_the_old_one(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = commit_only(cluster, failOnDataLoss=False)
    query.run_available_now()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1)
    expected = produce(cluster, 2)
    query.start(available_now=True)
    assert query.trigger()
    assert cluster.committed(GROUP).get(TopicPartition("orders", 0)) is None
    assert not query.trigger()
    query.stop()
    assert query.values()[5:] == expected
    assert committed(cluster)[0] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "commitOnly requires option kafka.group.id"),
        ({"kafka.group.id": "g", "rebalanceWait": "5s"}, "rebalanceWait is for members"),
        ({"kafka.group.id": "g", "commitOnly": "yes"}, "'yes' is neither true nor false"),
    ],
)
def test_options_that_contradict_commit_only(given: dict[str, str], said: str) -> None:
    chosen = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "commitOnly": "true"} | given
    with pytest.raises(InvalidOptionError, match=said):
        SourceOptions.parse(chosen, streaming=True)


def test_commit_only_is_for_streams() -> None:
    chosen = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "commitOnly": "true"}
    with pytest.raises(InvalidOptionError, match="commitOnly is for streams"):
        SourceOptions.parse(chosen | {"kafka.group.id": "g"}, streaming=False)
