"""Tasks that wait for missing records: lost ones, and late ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode, KafkaTimeoutError, LogTruncationError
from kohort.spark_connector import _reading
from kohort.spark_connector._batch import KohortPartition
from kohort.spark_connector._consumers import close_idle
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._ranges import OffsetRange
from kohort.testing import Cluster
from tests.spark_connector.members import member_options
from tests.spark_connector.reading import (
    DEADLINE,
    Query,
    batch_reader,
    open_transaction,
    options,
    produce,
    rows,
    values,
)

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(autouse=True)
def _looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reading, "CHECK_S", 0.02)
    monkeypatch.setattr(_reading, "CHECK_MAX_S", 0.1)


def read(given: dict[str, str], *ranges: tuple[str, int, int, int]) -> Iterator[dict[str, Any]]:
    """Return the rows of one task."""
    task = KohortPartition([OffsetRange(*each) for each in ranges])
    return rows(batch_reader(given, "value binary"), [task])


class Reading:
    """A task in a thread."""

    def __init__(self, given: dict[str, str], *ranges: tuple[str, int, int, int]) -> None:
        self.values: list[bytes] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(read(given, *ranges),))
        self._thread.start()

    def _run(self, found: Iterator[dict[str, Any]]) -> None:
        try:
            for row in found:
                self.values.append(row["value"])
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def asked(cluster: Cluster, api: str) -> Callable[[int], Callable[[], bool]]:
    """Return a factory of predicates that wait for a number of further requests."""
    before = sum(request.api == api for request in cluster.requests)
    return lambda count: (
        lambda: sum(request.api == api for request in cluster.requests) >= before + count
    )


@pytest.mark.parametrize("level", [{}, COMMITTED])
def test_what_lies_behind_the_end_of_the_log_is_lost(
    cluster: Cluster, level: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    expected = produce(cluster, 3)
    ranges = ("orders", 0, 0, 9), ("orders", 0, 12, 15), ("orders", 1, 0, 0)
    found = read(options(cluster, **level), *ranges)
    assert [next(found)["value"] for _ in range(3)] == expected
    with pytest.raises(DataLossError, match=r"orders-0 \[3, 9\), orders-0 \[12, 15\)") as caught:
        next(found)
    assert caught.value.ranges == (OffsetRange("orders", 0, 3, 9), OffsetRange("orders", 0, 12, 15))
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        lenient = options(cluster, failOnDataLoss=False, **level)
        assert values(list(read(lenient, *ranges))) == expected
    assert caplog.text.count("orders-0 [3, 9), orders-0 [12, 15)") == 1


@pytest.mark.parametrize("of", [options, member_options])
@pytest.mark.parametrize("fails", [True, False])
def test_batch_is_replayed_when_its_topic_was_recreated_shorter(
    cluster: Cluster, fails: bool, of: Callable[..., dict[str, str]]
) -> None:
    query = Query(of(cluster, startingOffsets="earliest", failOnDataLoss=fails))
    produce(cluster, 5)
    query.start()
    cluster.wait_until(query.trigger, DEADLINE)
    produce(cluster, 15)
    cluster.wait_until(lambda: query.trigger(finish=False), DEADLINE)
    query.stop()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    expected = produce(cluster, 9)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[5, 20\)"):
            query.start()
        query.stop()
        return
    query.start()
    assert query.batches[-1] == []
    cluster.wait_until(query.trigger, DEADLINE)
    assert values(query.batches[-1]) == expected
    query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_deleted_topics_and_partitions_are_lost_and_others_read(
    cluster: Cluster, fails: bool
) -> None:
    cluster.create_topic("other", 1)
    expected = produce(cluster, 4, "other")
    ranges = ("orders", 0, 2, 9), ("other", 0, 0, 4), ("other", 1, 0, 4)
    cluster.delete_topic("orders")
    given = options(cluster, failOnDataLoss=fails)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[2, 9\), other-1 \[0, 4\)"):
            list(read(given, *ranges))
    else:
        assert values(list(read(given, *ranges))) == expected
        # The next task with the same consumer reads without delay.
        assert values(list(read(given, ("other", 0, 0, 4)))) == expected
    assert set(cluster.topics) == {"other"}, "reading does not recreate a deleted topic"


@pytest.mark.parametrize("fails", [True, False])
def test_range_is_lost_when_its_topic_is_recreated_meanwhile(cluster: Cluster, fails: bool) -> None:
    produce(cluster, 4)
    found = read(options(cluster, failOnDataLoss=fails), ("orders", 0, 0, 9))
    for _ in range(4):
        next(found)
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    produce(cluster, 20)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[4, 9\)"):
            next(found)
    else:
        assert list(found) == []


@pytest.mark.parametrize("fails", [True, False])
def test_an_open_transaction_is_waited_for(cluster: Cluster, fails: bool) -> None:
    producer, expected = open_transaction(cluster, 5)
    looks = asked(cluster, "ListOffsets")
    given = options(cluster, failOnDataLoss=fails, **COMMITTED)
    reading = Reading(given, ("orders", 0, 0, 5))
    cluster.wait_until(looks(8), DEADLINE)
    producer.commit_transaction(DEADLINE)
    reading.wait()
    assert reading.values == expected


def test_what_is_waited_for_too_long_is_an_error(cluster: Cluster) -> None:
    producer, _ = open_transaction(cluster, 5)
    given = options(cluster, **COMMITTED, **{"kafkaConsumer.pollTimeoutMs": 300})
    with pytest.raises(
        KafkaTimeoutError, match=r"no records of orders-0 \[0, 5\) arrived for 300 ms"
    ):
        list(read(given, ("orders", 0, 0, 5)))
    producer.abort_transaction(DEADLINE)


def test_a_leader_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.spark_connector.planning._log_bounds.LOOK_UP_MS", 200)
    with Cluster(brokers=2, topics={"orders": 2}, replication_factor=1) as cluster:
        expected = produce(cluster, 5)
        leader = cluster.leader("orders", 0)
        given = options(cluster)
        cluster.kill_broker(leader)
        looks = asked(cluster, "Metadata")
        reading = Reading(given, ("orders", 0, 0, 5))
        cluster.wait_until(looks(8), DEADLINE)
        cluster.start_broker(leader)
        reading.wait()
        assert reading.values == expected
        close_idle()


def test_offsets_refused_by_a_broker_that_has_them_are_read(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    with cluster.fail("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, times=2):
        assert values(list(read(options(cluster), ("orders", 0, 0, 5)))) == expected


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_is_cut_off_under_a_task(fails: bool, more: int) -> None:
    with Cluster(brokers=2, topics={"orders": 1}) as cluster:
        place = TopicPartition("orders", 0)
        expected = produce(cluster, 2)
        follower = 3 - cluster.leader("orders", 0)
        cluster.lag(place, follower)
        expected += produce(cluster, 2)
        found = read(options(cluster, failOnDataLoss=fails), ("orders", 0, 0, 9))
        assert [next(found)["value"] for _ in range(4)] == expected
        cluster.move_leader("orders", 0, to=follower)
        new = produce(cluster, more)
        if fails:
            with pytest.raises((LogTruncationError, DataLossError)):
                list(found)
        else:
            assert values(list(found)) == new[2:]
        close_idle()
