"""The streaming source as a member of its group, in Spark's order of calls, without Spark."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kohort import TopicPartition
from kohort.errors import LogTruncationError
from kohort.spark_connector._consumers import close_idle
from kohort.testing import Cluster
from tests.spark_connector.members import (
    DEADLINE,
    GROUP,
    committed,
    member,
    member_options,
    plain,
)
from tests.spark_connector.reading import Query, kept, produce


def test_a_query_joins_reads_commits_and_leaves(cluster: Cluster) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 5, partition=p)]
    query = member(cluster)
    query.start()
    assert not cluster.group("billing").members
    assert query.trigger()
    assert sorted(query.values()) == sorted(expected)
    assert len(cluster.group("billing").members) == 1
    assert committed(cluster) == {0: 0, 1: 0, 2: 0}  # the offsets at which it starts
    assert not query.trigger()
    cluster.wait_until(lambda: committed(cluster) == {0: 5, 1: 5, 2: 5}, DEADLINE)
    query.stop()
    assert not cluster.group("billing").members


def test_stopping_commits_what_is_done_and_nothing_else(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    produce(cluster, 5)
    cluster.wait_until(lambda: query.trigger(finish=False), DEADLINE)
    query.stop()
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}


def test_a_batch_that_was_not_finished_is_read_again_just_so(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger(finish=False)
    query.stop()
    more = produce(cluster, 5)
    query.start()  # reads it before any call of the driver
    assert query.values() == expected
    assert not cluster.group("billing").members
    cluster.wait_until(query.trigger, DEADLINE)
    assert query.values() == expected + more
    query.stop()


def test_a_new_checkpoint_goes_on_where_the_group_is(cluster: Cluster) -> None:
    produce(cluster, 5)
    member(cluster).run_available_now()
    expected = produce(cluster, 3)
    second = member(cluster)
    second.run_available_now()
    assert second.values() == expected


def test_where_a_stream_started_is_committed_at_once(cluster: Cluster) -> None:
    """A restart before the first batch must not lose the records between both starts."""
    produce(cluster, 5)
    given = member_options(cluster, startingOffsets="latest")
    first = Query(given)
    first.start()
    first.reader.latestOffset(first.reader.initialOffset(), ReadAllAvailable())
    first.stop()
    expected = produce(cluster, 3)
    second = Query(given)
    second.start()
    second.trigger()
    second.stop()
    assert second.values() == expected


def test_a_commit_says_which_checkpoint_it_is_of(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.run_available_now()
    checkpoint = kept(json.loads(query.offset_log[-1]))["query"]
    found = cluster.committed(GROUP).values()
    assert {each.metadata for each in found} == {f"kohort/{checkpoint}"}


def test_commit_has_leader_epoch_when_batch_is_finished(cluster: Cluster) -> None:
    cluster.move_leader("orders")  # to the same broker, in another epoch
    expected = produce(cluster, 5)
    query = member(cluster)
    query.start()
    assert query.trigger()
    assert not query.trigger()
    cluster.wait_until(lambda: committed(cluster)[0] == 5, DEADLINE)
    query.stop()
    assert query.values() == expected
    assert cluster.committed(GROUP)[TopicPartition("orders", 0)].leader_epoch == 1


@pytest.mark.parametrize("then", [0, 4])
def test_next_consumer_notices_truncation_of_read_records(then: int) -> None:
    with Cluster(brokers=2, topics={"orders": 1}) as cluster:
        follower = 3 - cluster.leader("orders")
        produce(cluster, 2)
        cluster.lag(TopicPartition("orders", 0), follower)
        produce(cluster, 3)
        member(cluster).run_available_now()
        assert committed(cluster) == {0: 5}
        cluster.move_leader("orders", to=follower)
        if then:
            produce(cluster, then)
        with plain(cluster) as consumer, pytest.raises(LogTruncationError) as caught:
            consumer.poll(DEADLINE * 1000)
        assert (caught.value.offset, caught.value.diverging_offset) == (5, 2)
        close_idle()


def test_available_now_ends_at_initial_log_end_and_commits_all(cluster: Cluster) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 20, partition=p)]
    query = member(cluster, maxOffsetsPerTrigger=25)
    query.start(available_now=True)
    late = produce(cluster, 5)
    while query.trigger():
        assert len(query.batches) < 9
    assert committed(cluster) == {0: 20, 1: 20, 2: 20}
    query.stop()
    assert sorted(query.values()) == sorted(expected)
    assert [len(batch) for batch in query.batches] == [25, 25, 10]
    query.run_available_now()
    assert query.values()[60:] == late
    query.run_available_now()
    assert len(query.batches) == 4


def test_without_news_the_very_same_offset_is_returned(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger()
    start = json.loads(query.offset_log[-1])
    for _ in range(20):
        assert query.reader.latestOffset(start, ReadAllAvailable()) is start
    assert query.reader.reportLatestOffset() == {"orders": {"0": 5, "1": 0, "2": 0}}
    query.stop()
