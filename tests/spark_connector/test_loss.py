"""Streams of topics that lost records, and of topics that only have gaps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from kohort import TopicPartition
from kohort.errors import UnknownTopicOrPartitionError
from kohort.spark_connector import _stream_driver
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._group_driver import GroupDriver
from kohort.spark_connector._ranges import OffsetRange
from kohort.spark_connector.member import _member
from kohort.testing import Cluster, ProducerRecord
from kohort.testing._handle import _topic
from tests.spark_connector.members import GROUP, member, member_options
from tests.spark_connector.reading import Query, delete_before, options, produce, read_batch, values

DEADLINE = 90.0

Make = Callable[..., Query]


@pytest.fixture(params=["alone", "member"])
def make(
    request: pytest.FixtureRequest, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """A function that creates queries with frequent checks of the cluster.

    One parameter is without a group, the other with one.
    """
    for module in (_stream_driver, _member):
        monkeypatch.setattr(module, "ENDS_REFRESH_S", 0.0)
        monkeypatch.setattr(module, "PARTITIONS_REFRESH_S", 0.1)
    made: list[Query] = []

    def query(**given: object) -> Query:
        wanted = {"startingOffsets": "earliest"} | given
        chosen = member_options if request.param == "member" else options
        made.append(Query(chosen(cluster, **wanted)))
        return made[-1]

    yield query
    for each in made:
        if each.reader is not None:
            each.stop()


def read_on(cluster: Cluster, query: Query, count: int) -> None:
    """Run batches until the query has read this many records in total."""

    def enough() -> bool:
        query.trigger()
        return len(query.values()) >= count

    cluster.wait_until(enough, DEADLINE)


def was_recreated(cluster: Cluster, count: int, partitions: int = 3) -> list[bytes]:
    """Replace the topic by a new one with this many records in its first partition."""
    cluster.delete_topic("orders")
    cluster.create_topic("orders", partitions)
    made = [b"new-%d" % number for number in range(count)]
    cluster.produce("orders", [ProducerRecord(value, partition=0) for value in made])
    return made


@pytest.mark.parametrize("count", [4, 30])
@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_between_two_runs(
    cluster: Cluster, make: Make, count: int, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 20)
    query = make(failOnDataLoss=fails)
    query.run_available_now()
    expected = was_recreated(cluster, count)
    if fails:
        with pytest.raises(DataLossError, match="topic orders was deleted and recreated") as caught:
            query.run_available_now()
        first = OffsetRange("orders", 0, min(count, 20), 20)
        assert caught.value.ranges == (
            first,
            OffsetRange("orders", 1, 0, 0),
            OffsetRange("orders", 2, 0, 0),
        )
        return
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    assert query.values()[20:] == expected
    assert caplog.text.count("topic orders was deleted and recreated") == 1
    # Later records are read as usual.
    more = produce(cluster, 5)
    query.run_available_now()
    assert query.values()[20 + count :] == more


@pytest.mark.parametrize("fails", [True, False])
def test_topic_recreated_longer_during_a_running_query(
    cluster: Cluster, make: Make, fails: bool
) -> None:
    produce(cluster, 20)
    query = make(failOnDataLoss=fails)
    query.start()
    read_on(cluster, query, 20)
    expected = was_recreated(cluster, 30)
    if fails:
        with pytest.raises(DataLossError, match="orders"):
            read_on(cluster, query, 50)
        return
    read_on(cluster, query, 50)
    assert query.values()[20:] == expected
    more = produce(cluster, 5)
    read_on(cluster, query, 55)
    assert query.values()[50:] == more


@pytest.mark.parametrize("fails", [True, False])
def test_batch_is_not_replayed_from_a_recreated_topic(
    cluster: Cluster, make: Make, fails: bool
) -> None:
    produce(cluster, 5)
    query = make(failOnDataLoss=fails)
    query.start()
    query.trigger(finish=False)
    query.stop()
    expected = was_recreated(cluster, 9)
    if fails:
        with pytest.raises(
            DataLossError, match="orders were deleted and recreated after this batch"
        ):
            query.start()
        return
    query.start()
    assert query.values() == []
    read_on(cluster, query, 9)
    assert query.values() == expected


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_with_fewer_partitions(cluster: Cluster, make: Make, fails: bool) -> None:
    for partition in range(3):
        produce(cluster, 5, partition=partition)
    query = make(failOnDataLoss=fails)
    query.run_available_now()
    expected = was_recreated(cluster, 9, partitions=1)
    if fails:
        with pytest.raises(DataLossError, match="topic orders was deleted and recreated"):
            query.run_available_now()
        return
    query.run_available_now()
    assert query.values()[15:] == expected
    assert query.end() == {"orders": {"0": 9}}


@pytest.mark.parametrize("fails", [True, False])
def test_what_retention_took_is_named_to_the_offset(
    cluster: Cluster, make: Make, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 5)
    query = make(failOnDataLoss=fails)
    query.run_available_now()
    expected = produce(cluster, 10)
    delete_before(cluster, 9)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[5, 9\)") as caught:
            query.run_available_now()
        assert caught.value.ranges == (OffsetRange("orders", 0, 5, 9),)
        return
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    assert query.values()[5:] == expected[4:]
    assert "orders-0 [5, 9)" in caplog.text


def truncate(cluster: Cluster, offset: int) -> None:
    """Truncate the log, as an unclean election of a leader may do."""
    cluster._read(lambda state: _topic(state, "orders").partitions[0].log.truncate(offset))


@pytest.mark.parametrize(
    ("left", "minimum"), [(0, {}), (3, {"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h"})]
)
def test_a_truncated_log_is_read_from_its_beginning_whatever_it_grows_to(
    cluster: Cluster, make: Make, left: int, minimum: dict[str, object]
) -> None:
    produce(cluster, 10)
    query = make(failOnDataLoss=False, **minimum)
    query.start()
    read_on(cluster, query, 10)
    truncate(cluster, left)
    cluster.wait_until(lambda: query.trigger() and query.end()["orders"]["0"] == left, DEADLINE)
    expected = produce(cluster, 12)
    query.change(*minimum)
    query.stop()
    query.run_available_now()
    assert query.values()[10 + left :] == expected


def test_what_retention_took_is_named_when_the_group_has_no_offset(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.run_available_now()
    produce(cluster, 10)
    delete_before(cluster, 9)
    query.change(**{"kafka.group.id": "fresh"})
    with pytest.raises(DataLossError, match=r"orders-0 \[5, 9\)"):
        query.run_available_now()
    query.stop()


def test_what_retention_took_is_named_after_a_run_that_ended_before_its_batch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group keeps no start of the log for a partition that the checkpoint has."""

    def fail(driver: GroupDriver) -> None:
        assert driver._partitions.wait_for_first_starts(DEADLINE)
        raise EOFError

    produce(cluster, 15)
    delete_before(cluster, 9)
    query = member(cluster)
    query.offset_log.append('{"orders": {"0": 5}}')  # of Spark's own source
    query.commit_log = 1
    with monkeypatch.context() as patch:
        patch.setattr(GroupDriver, "_wait_for_first_partitions", fail)
        query.start()
        with pytest.raises(EOFError):
            query.trigger()
        query.stop()
    with pytest.raises(DataLossError, match=r"orders-0 \[5, 9\)"):
        query.run_available_now()
    query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_range_of_which_nothing_is_left_is_named_as_a_whole(
    cluster: Cluster, make: Make, fails: bool
) -> None:
    produce(cluster, 5)
    query = make(failOnDataLoss=fails)
    query.start()
    assert query.trigger(finish=False)
    query.stop()
    delete_before(cluster, 5)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[0, 5\)"):
            query.start()
    else:
        query.start()
        assert query.values() == []


def test_added_partitions_are_read_from_their_beginning(cluster: Cluster, make: Make) -> None:
    produce(cluster, 5)
    query = make(startingOffsets="latest", failOnDataLoss=True)
    query.start()
    query.trigger()
    cluster.add_partitions("orders", 5)
    for partition in (3, 4):
        produce(cluster, 4, partition=partition)
    read_on(cluster, query, 8)
    assert sorted(query.values()) == sorted(
        b"orders-%d-%d" % (partition, number) for partition in (3, 4) for number in range(4)
    )


def test_gaps_of_compaction_are_no_loss(cluster: Cluster, make: Make) -> None:
    cluster.create_topic("state", 1, {"cleanup.policy": "compact"})
    for round_ in range(5):
        cluster.produce("state", [(f"k{key}", f"v{round_}-{key}") for key in range(10)])
    cluster.compact("state")
    left = values(read_batch(options(cluster, subscribe="state")))
    assert len(left) < 50
    assert {b"v4-%d" % key for key in range(10)} <= set(left)
    query = make(subscribe="state", maxOffsetsPerTrigger=7)
    query.run_available_now()
    assert query.values() == left
    assert query.end() == {"state": {"0": 50}}
    assert len(query.offset_log) >= 7, "some of them hold nothing"


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_and_their_markers_are_no_loss(
    cluster: Cluster, make: Make, level: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "orders"}
    )
    producer.init_transactions(DEADLINE)
    kept: list[bytes] = []
    for round_ in range(4):
        producer.begin_transaction()
        made = [b"%d-%d" % (round_, number) for number in range(5)]
        for value in made:
            producer.produce("orders", value, partition=0)
        producer.flush(DEADLINE)
        if round_ % 2:
            producer.abort_transaction(DEADLINE)
        else:
            producer.commit_transaction(DEADLINE)
        if not round_ % 2 or level == "read_uncommitted":
            kept += made
    query = make(maxOffsetsPerTrigger=4, kafka_isolation_level=level)
    query.run_available_now()
    assert query.values() == kept
    assert query.end()["orders"]["0"] == 24  # four markers
    assert values(read_batch(options(cluster, kafka_isolation_level=level))) == kept


@pytest.fixture
def rarely(make: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Queries that check for partitions only once, unless they have a reason."""
    for module in (_stream_driver, _member):
        monkeypatch.setattr(module, "PARTITIONS_REFRESH_S", 3600.0)
    return make


@pytest.mark.cases(1)  # each waits until the deletion is certain
@pytest.mark.parametrize("fails", [True, False])
def test_deleted_topic_is_noticed_at_end_lookup_and_others_go_on(
    cluster: Cluster, rarely: Make, fails: bool
) -> None:
    cluster.create_topic("other", 1)
    produce(cluster, 9)
    produce(cluster, 3, "other")
    query = rarely(subscribe="orders,other", failOnDataLoss=fails)
    query.start()
    read_on(cluster, query, 12)
    cluster.delete_topic("orders")
    if fails:
        with pytest.raises(DataLossError, match="orders-0 was deleted"):
            read_on(cluster, query, 13)
        return
    produce(cluster, 5, "other")
    read_on(cluster, query, 17)
    if query.is_member:
        place = TopicPartition("other", 0)

        def all_of_it() -> bool:
            query.trigger()
            return cluster.committed(GROUP)[place].offset == 8

        cluster.wait_until(all_of_it, DEADLINE)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_deleted_between_two_runs(cluster: Cluster, make: Make, fails: bool) -> None:
    cluster.create_topic("other", 1)
    produce(cluster, 9)
    produce(cluster, 3, "other")
    query = make(subscribe="orders,other", failOnDataLoss=fails)
    query.run_available_now()
    cluster.delete_topic("orders")
    expected = produce(cluster, 2, "other")
    if fails:
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic is called orders"):
            query.run_available_now()
        return
    query.run_available_now()
    assert query.values()[12:] == expected


def test_a_mistyped_topic_is_told_whatever_may_be_lost(cluster: Cluster, make: Make) -> None:
    query = make(subscribe="orders,odrers", failOnDataLoss=False)
    with pytest.raises(UnknownTopicOrPartitionError, match="odrers"):
        query.run_available_now()


@pytest.mark.parametrize("make", ["member"], indirect=True)
def test_partitions_assigned_before_the_query_knows_are_no_loss(
    cluster: Cluster, rarely: Make
) -> None:
    produce(cluster, 3)
    query = rarely(**{"kafka.metadata.max.age.ms": 100})
    query.start()
    read_on(cluster, query, 3)
    cluster.add_partitions("orders", 6)
    produce(cluster, 4, partition=5)
    read_on(cluster, query, 7)
    produce(cluster, 2, partition=5)
    read_on(cluster, query, 9)


FEWER: dict[str, tuple[dict[str, str], tuple[str, ...], dict[str, str]]] = {
    "subscribe": ({"subscribe": "orders,payments"}, (), {"subscribe": "orders"}),
    "pattern": ({"subscribePattern": ".*s"}, (), {"subscribePattern": "ord.*"}),
    "another option": (
        {"subscribe": "orders,payments"},
        ("subscribe",),
        {"subscribePattern": "o.*"},
    ),
}


@pytest.mark.parametrize("given", FEWER)
def test_topic_is_dropped_when_it_is_no_longer_subscribed(
    cluster: Cluster, make: Make, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("payments", 1)
    cluster.produce("payments", [b"paid"] * 3)
    first = produce(cluster, 5)
    before, removed, after = FEWER[given]
    query = make(**before)
    query.run_available_now()
    assert len(query.values()) == 8
    query.change(*removed, **after)
    second = produce(cluster, 5)
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    assert sorted(values(query.batches[-1])) == sorted(second)
    assert query.end().keys() == {"orders"}
    [said] = [each.getMessage() for each in caplog.records if "payments" in each.getMessage()]
    assert "no longer subscribed" in said
    assert "payments-0 (read up to 3)" in said
    assert len(first) == 5


def test_partitions_are_dropped_when_they_are_no_longer_assigned(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, assign='{"orders":[0,1]}', startingOffsets="earliest"))
    query.run_available_now()
    query.change(assign='{"orders":[0]}')
    produce(cluster, 5)
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        query.run_available_now()
    assert query.end() == {"orders": {"0": 10}}
    assert "no longer subscribed: orders-1 (read up to 0)" in caplog.text


def test_interrupted_batch_is_replayed_with_unsubscribed_topic(
    cluster: Cluster, make: Make
) -> None:
    cluster.create_topic("payments", 1)
    cluster.produce("payments", [b"paid"] * 3)
    produce(cluster, 5)
    query = make(subscribe="orders,payments")
    query.start()
    cluster.wait_until(lambda: query.trigger(finish=False), DEADLINE)
    query.stop()
    query.change(subscribe="orders")
    query.start()
    assert len(query.values()) == 8


def test_deleted_topic_is_still_lost_when_it_is_subscribed(cluster: Cluster, make: Make) -> None:
    cluster.create_topic("payments", 1)
    cluster.produce("payments", [b"paid"] * 3)
    produce(cluster, 5)
    query = make(subscribePattern=".*s")
    query.run_available_now()
    cluster.delete_topic("payments")
    query.change(subscribePattern="(pay|ord).*")
    with pytest.raises(DataLossError, match="payments-0 was deleted"):
        query.run_available_now()
