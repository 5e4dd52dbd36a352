"""Checkpoints beside the group's offsets: restored from a backup, and of another query."""

from __future__ import annotations

import logging

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import InvalidOptionError
from kohort.spark_connector._errors import DataLossError, OffsetFormatError
from kohort.spark_connector._ranges import OffsetRange
from kohort.testing import Cluster
from tests.spark_connector.members import GROUP, committed, member_options
from tests.spark_connector.reading import Query, options, produce

PAST_END = 10_000


def query_of(cluster: Cluster, group: bool, **given: object) -> Query:
    """Return a query that reads from the beginning."""
    wanted = {"startingOffsets": "earliest"} | given
    return Query((member_options if group else options)(cluster, **wanted))


def set_offset(cluster: Cluster, offset: int) -> None:
    """Set the group's offset of the first partition, as Kafka's tool does."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as tool:
        tool.commit({TopicPartition("orders", 0): offset})


class Backup:
    """A copy of a checkpoint."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._offsets = list(query.offset_log)
        self._batches = list(query.batches)

    def restore(self) -> None:
        """Restore the checkpoint, and the output with it."""
        self._query.offset_log[:] = self._offsets
        self._query.commit_log = len(self._offsets)
        self._query.batches[:] = self._batches


@pytest.mark.parametrize("reset", ["checkpoint", "honor", "group"])
def test_restored_checkpoint_is_followed_unless_group_is_chosen(
    cluster: Cluster, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 5)
    query = query_of(cluster, True, groupOffsetReset=reset, maxOffsetsPerTrigger=2)
    query.run_available_now()
    backup = Backup(query)
    expected = produce(cluster, 9)
    query.run_available_now()
    backup.restore()
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    said = [each.getMessage() for each in caplog.records if "backup" in each.getMessage()]
    assert committed(cluster)[0] == 14
    if reset == "group":
        assert (len(query.values()), said) == (5, [])
        return
    assert query.values()[5:] == expected
    assert len(said) == 1
    assert "orders-0 5 instead of 14" in said[0]


def test_group_set_back_or_forward_wins_when_it_is_chosen(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = query_of(cluster, True, groupOffsetReset="group")
    query.run_available_now()
    for offset in (2, 4):
        set_offset(cluster, offset)
        before = len(query.values())
        query.run_available_now()
        assert len(query.values()) - before == 5 - offset


def test_group_without_offset_does_not_win_over_checkpoint(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = query_of(cluster, True, groupOffsetReset="group")
    query.run_available_now()
    query.change(**{"kafka.group.id": "other"})
    query.run_available_now()
    assert len(query.values()) == 5


@pytest.mark.parametrize("fails", [True, False])
def test_group_offset_past_log_end_falls_back_to_checkpoint(
    cluster: Cluster, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 5)
    query = query_of(cluster, True, failOnDataLoss=fails)
    query.run_available_now()
    expected = produce(cluster, 3)
    set_offset(cluster, PAST_END)
    said = "orders-0 ends at 8 but the group's offset is 10000"
    if fails:
        with pytest.raises(DataLossError, match=f"{said}.*the offsets of the checkpoint") as caught:
            query.run_available_now()
        assert caught.value.ranges == (OffsetRange("orders", 0, 8, PAST_END),)
        query.stop()
        return
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    assert query.values()[5:] == expected
    assert committed(cluster)[0] == 8
    assert said in caplog.text


@pytest.mark.parametrize("group", [False, True], ids=["alone", "member"])
def test_checkpoint_of_spark_s_own_source_is_continued(cluster: Cluster, group: bool) -> None:
    produce(cluster, 5)
    query = query_of(cluster, group, startingOffsets="latest")
    query.offset_log += ['{"orders":{"0":2,"1":0}}', '{"orders":{"2":0,"1":0,"0":4}}']
    query.commit_log = 1
    query.run_available_now()
    assert query.values() == [b"orders-0-2", b"orders-0-3", b"orders-0-4"]
    assert query.end() == {"orders": {"0": 5, "1": 0, "2": 0}}
    query.run_available_now()
    assert len(query.values()) == 3
    if group:
        assert committed(cluster)[0] == 5


def test_idle_checkpoint_of_spark_s_own_source_stays_as_it_is(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = query_of(cluster, False)
    query.offset_log.append('{"orders": {"0": 5, "1": 0, "2": 0}}')
    query.commit_log = 1
    query.run_available_now()
    assert len(query.offset_log) == 1


def test_unfinished_first_batch_of_spark_s_own_source_is_an_error(cluster: Cluster) -> None:
    query = query_of(cluster, False)
    query.offset_log.append('{"orders":{"0":5,"1":0,"2":0}}')
    with pytest.raises(OffsetFormatError, match="the first batch of this checkpoint is unfinished"):
        query.run_available_now()
    query.stop()


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "interrupted"])
@pytest.mark.parametrize("group", [False, True], ids=["alone", "member"])
def test_checkpoint_of_another_topic_is_an_error(
    cluster: Cluster, group: bool, finished: bool
) -> None:
    cluster.create_topic("payments", 1)
    produce(cluster, 5)
    produce(cluster, 2, "payments")
    query = query_of(cluster, group)
    query.start()
    cluster.wait_until(lambda: query.trigger(finish=finished))
    query.stop()
    query.change(subscribe="payments")
    with pytest.raises(InvalidOptionError, match="the checkpoint is of 'orders'") as caught:
        query.run_available_now()
    assert "allowOtherTopics=true" in str(caught.value)
    if query.reader is not None:
        query.stop()
    query.change(allowOtherTopics="true")
    query.run_available_now()
    assert query.values()[5:] == [b"payments-0-0", b"payments-0-1"]
    assert query.end() == {"payments": {"0": 2}}


def test_query_gets_a_group_later_and_continues_at_its_checkpoint(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = query_of(cluster, False)
    query.run_available_now()
    expected = produce(cluster, 3)
    query.change(**{"kafka.group.id": GROUP})
    query.run_available_now()
    assert query.values()[5:] == expected
    assert committed(cluster)[0] == 8
