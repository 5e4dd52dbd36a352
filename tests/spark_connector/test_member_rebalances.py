"""Partitions that move between streaming queries and other members of their group."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode
from kohort.spark_connector import _group_driver
from kohort.spark_connector._consumers import close_idle
from kohort.spark_connector._offsets import StreamOffset
from kohort.testing import Cluster
from tests.spark_connector.members import (
    DEADLINE,
    GROUP,
    Polling,
    committed,
    held_back,
    member,
    member_options,
    owned,
    owned_by_group,
    plain,
)
from tests.spark_connector.reading import Query, produce

LOGGER = "kohort.spark_connector"


def run_until(cluster: Cluster, done: Callable[[], bool], *queries: Query) -> None:
    """Run batches of these queries until the condition holds."""

    def step() -> bool:
        for query in queries:
            query.trigger()
        return done()

    cluster.wait_until(step, DEADLINE)


def produce_all(cluster: Cluster, count: int) -> list[bytes]:
    """Produce ``count`` different records to each partition."""
    base = len(cluster.records("orders", 0))
    values = []
    for partition in range(3):
        values += [b"%d-%d" % (partition, base + number) for number in range(count)]
        cluster.produce("orders", [(None, v) for v in values[-count:]], partition=partition)
    return values


@pytest.mark.parametrize("strategy", ["cooperative-sticky,range", "cooperative-sticky"])
def test_partitions_are_handed_over_without_loss_or_duplicates(
    cluster: Cluster, strategy: str
) -> None:
    expected = produce_all(cluster, 5)
    given = {"kafka_partition_assignment_strategy": strategy}
    first, second = member(cluster, **given), member(cluster, **given)
    first.start()
    run_until(cluster, lambda: len(owned(first)) == 3, first)
    second.start()
    run_until(cluster, lambda: bool(owned(first) and owned(second)), first, second)
    expected += produce_all(cluster, 5)
    with Polling(plain(cluster, partition_assignment_strategy=strategy.split(","))) as other:
        run_until(cluster, lambda: len(other.assigned) == 1, first, second)
        expected += produce_all(cluster, 5)
        run_until(cluster, lambda: bool(other.values), first, second)
    run_until(cluster, lambda: len(owned(first) | owned(second)) == 3, first, second)
    expected += produce_all(cluster, 5)
    # A stop leaves the latest batch uncommitted, because Spark has not reported its end.
    run_until(cluster, lambda: committed(cluster) == {0: 20, 1: 20, 2: 20}, first, second)
    first.stop()
    run_until(cluster, lambda: len(owned(second)) == 3, second)
    expected += produce_all(cluster, 5)
    everything = len(expected)
    run_until(cluster, lambda: committed(cluster) == {0: 25, 1: 25, 2: 25}, second)
    second.stop()
    assert sorted(first.values() + second.values() + other.values) == sorted(expected)
    # Partitions of others stay in the offsets as empty ranges. No record is read again later.
    first.start()
    run_until(cluster, lambda: len(owned(first)) == 3, first)
    assert len(first.values() + second.values() + other.values) == everything
    first.stop()


def test_a_revocation_waits_for_the_end_of_the_batch(cluster: Cluster) -> None:
    expected = produce_all(cluster, 5)
    query = member(cluster, rebalanceWait="60s")
    query.start()
    query.trigger(finish=False)
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: held_back(query), DEADLINE)
        assert not other.assigned
        assert committed(cluster) == {0: 0, 1: 0, 2: 0}
        query.finish()
        run_until(cluster, lambda: bool(other.assigned), query)
        assert committed(cluster) == {0: 5, 1: 5, 2: 5}
        expected += produce_all(cluster, 1)
        run_until(cluster, lambda: len(query.values() + other.values) >= 18, query)
    query.stop()
    assert sorted(query.values() + other.values) == sorted(expected)


def test_a_batch_that_takes_too_long_is_not_waited_for(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    expected = produce_all(cluster, 5)
    query = member(cluster, rebalanceWait="200ms")
    query.start()
    query.trigger(finish=False)
    with caplog.at_level(logging.WARNING, LOGGER), Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: other.assigned, DEADLINE)
        cluster.wait_until(lambda: len(other.values) >= 5 * len(other.assigned), DEADLINE)
        lost = set(other.assigned)
        query.finish()
        run_until(cluster, lambda: bool(owned(query)), query)
    assert "before the end of a micro-batch was known, within rebalanceWait" in caplog.text
    run_until(cluster, lambda: len(owned(query)) == 3, query)
    query.stop()
    # Each reads a record once, so both read it together twice. Spark keeps what it has read.
    assert sorted(query.values()) == sorted(expected)
    assert sorted(other.values) == sorted(v for v in expected if int(v[:1]) in lost)
    assert committed(cluster) == {0: 5, 1: 5, 2: 5}


def test_the_end_of_a_query_ends_the_waiting(cluster: Cluster) -> None:
    produce_all(cluster, 5)
    query = member(cluster, rebalanceWait="200s")
    query.start()
    query.trigger(finish=False)
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: held_back(query), DEADLINE)
        begun = time.monotonic()
        query.stop()
        assert time.monotonic() - begun < DEADLINE
        cluster.wait_until(lambda: len(other.values) == 15, DEADLINE)


def test_what_is_lost_is_given_up_at_once(caplog: pytest.LogCaptureFixture) -> None:
    # The group waits for the lost member until its session ends.
    with Cluster(topics={"orders": 3}, group_settings={"min_session_timeout_ms": 1000}) as cluster:
        expected = produce_all(cluster, 5)
        query = member(cluster, rebalanceWait="200s", kafka_session_timeout_ms=2000)
        query.start()
        query.trigger(finish=False)
        with caplog.at_level(logging.WARNING, LOGGER):
            with cluster.fail("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID):
                cluster.wait_until(lambda: "lost orders-0" in caplog.text, DEADLINE)
            run = query.reader._driver._partitions
            cluster.wait_until(lambda: run.has_all_starts and len(run.readable()) == 3, DEADLINE)
        assert committed(cluster) == {0: 0, 1: 0, 2: 0}
        query.finish()
        expected += produce_all(cluster, 1)
        run_until(cluster, lambda: len(query.values()) >= 18, query)
        query.stop()
        close_idle()
    assert sorted(query.values()) == sorted(expected)


def test_batch_is_replayed_while_another_member_owns_partitions(cluster: Cluster) -> None:
    expected = produce_all(cluster, 5)
    query = member(cluster)
    query.start()
    query.trigger(finish=False)
    query.stop()
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: len(other.values) == 15, DEADLINE)
        query.start()
        assert sorted(query.values()) == sorted(expected)
        assert len(cluster.group(GROUP).members) == 1
        more = produce_all(cluster, 1)
        cluster.wait_until(lambda: len(other.values) == 18, DEADLINE)
    run_until(cluster, lambda: len(owned(query)) == 3, query)
    assert len(query.values()) == 15
    more += produce_all(cluster, 1)
    run_until(cluster, lambda: len(query.values()) >= 18, query)
    query.stop()
    assert sorted(query.values()[15:] + other.values[15:]) == sorted(more)


@pytest.mark.parametrize("strategy", ["cooperative-sticky,range", "cooperative-sticky"])
def test_available_now_ends_with_a_rebalance_in_its_midst(cluster: Cluster, strategy: str) -> None:
    expected = produce_all(cluster, 20)
    query = member(cluster, maxOffsetsPerTrigger=9, kafka_partition_assignment_strategy=strategy)
    query.start(available_now=True)
    assert query.trigger()
    with Polling(plain(cluster, partition_assignment_strategy=strategy.split(","))) as other:
        cluster.wait_until(lambda: held_back(query), DEADLINE)
        while query.trigger():
            assert len(query.batches) < 20
        query.stop()
        cluster.wait_until(lambda: len(query.values() + other.values) >= 60, DEADLINE)
    assert sorted(query.values() + other.values) == sorted(expected)
    assert len(query.batches) > 1


def test_available_now_leaves_gained_partitions_to_later_runs(cluster: Cluster) -> None:
    expected = produce_all(cluster, 5)
    query = member(cluster)
    with Polling(plain(cluster)) as other:
        cluster.wait_until(lambda: len(other.assigned) == 3, DEADLINE)
        cluster.wait_until(lambda: len(other.values) == 15, DEADLINE)
        query.start(available_now=True)
        mine = owned_by_group(query)
    assert 0 < len(mine) < 3
    query.trigger()
    produce_all(cluster, 5)
    cluster.wait_until(lambda: len(owned(query)) == 3, DEADLINE)
    while query.trigger():
        assert len(query.batches) < 5
    query.stop()
    assert query.values() == []
    assert sorted(other.values) == sorted(expected)


def test_member_without_partitions_waits_once_then_runs_empty(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_group_driver, "FIRST_ASSIGNMENT_S", 0.3)
    cluster.create_topic("single", 1)
    with KafkaConsumer(
        "single", bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP
    ) as other:
        cluster.wait_until(lambda: other.poll(50) or other.assignment(), DEADLINE)
        query = member(cluster, subscribe="single")
        with Polling(other):
            query.start()
            query.trigger()
            assert query.offset_log == [json.dumps(StreamOffset().to_json())]
            assert not query.trigger()
            query.stop()
    assert caplog.text.count("assigned this query no partitions within 0.3 s") == 1


def set_offset(cluster: Cluster, partition: int, offset: int) -> None:
    """Set an offset, as Kafka's tool does for a group without members."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as admin:
        admin.commit({TopicPartition("orders", partition): offset})


@pytest.mark.parametrize(("reset", "count"), [("checkpoint", 0), ("honor", 3)])
def test_the_checkpoint_or_a_reset_of_the_group_wins(
    cluster: Cluster, reset: str, count: int
) -> None:
    produce(cluster, 5)
    query = Query(member_options(cluster, groupOffsetReset=reset))
    query.run_available_now()
    assert len(query.values()) == 5
    set_offset(cluster, 0, 2)
    query.run_available_now()
    assert len(query.values()) == 5 + count
    assert committed(cluster)[0] == 5
    query.run_available_now()
    assert len(query.values()) == 5 + count


@pytest.mark.parametrize("reset", ["honor", "group"])
def test_reset_to_the_start_of_the_last_batch_is_no_old_offset(
    cluster: Cluster, reset: str
) -> None:
    """Spark takes a batch of the same text as the one before for no news."""
    produce(cluster, 5)
    query = Query(member_options(cluster, groupOffsetReset=reset))
    query.run_available_now()
    set_offset(cluster, 0, 0)
    query.run_available_now()
    assert len(query.values()) == 10
    assert committed(cluster)[0] == 5


def test_reset_holds_once_when_the_run_ends_before_its_commit(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = Query(member_options(cluster, groupOffsetReset="honor"))
    query.run_available_now()
    set_offset(cluster, 0, 2)
    query.start()
    cluster.wait_until(lambda: query.trigger() and len(query.values()) > 5, DEADLINE)
    query.stop()
    expected += produce(cluster, 1)
    query.run_available_now()
    assert query.values()[5:] == expected[2:]


def test_a_group_that_is_ahead_of_the_checkpoint_wins(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster)
    query.run_available_now()
    expected = produce(cluster, 5)
    set_offset(cluster, 0, 7)
    query.run_available_now()
    assert query.values()[5:] == expected[2:]


def test_partitions_that_are_added_are_read_from_their_beginning(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = member(cluster, startingOffsets="latest", kafka_metadata_max_age_ms=200)
    query.start()
    query.trigger()
    cluster.add_partitions("orders", 4)
    expected = produce(cluster, 5, partition=3)
    run_until(cluster, lambda: bool(query.values()), query)
    query.stop()
    assert query.values() == expected
