"""Streaming queries on the in-process cluster, in Spark's order of calls, without Spark."""

from __future__ import annotations

import json
import logging
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaConnectionError, UnknownTopicOrPartitionError
from kohort.spark_connector import _stream_driver
from kohort.spark_connector._errors import DataLossError, OffsetFormatError
from kohort.spark_connector._offsets import StreamOffset
from kohort.spark_connector._stream_driver import StreamDriver
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._batch_limits import limited_ends
from kohort.testing import Cluster, ProducerRecord
from tests.spark_connector.reading import (
    Query,
    delete_before,
    ends,
    kept,
    options,
    produce,
    source,
    stream_reader,
)


@pytest.fixture(autouse=True)
def _ends_are_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream_driver, "ENDS_REFRESH_S", 0.0)
    monkeypatch.setattr(_stream_driver, "PARTITIONS_REFRESH_S", 0.0)


def test_each_record_is_in_one_batch(cluster: Cluster) -> None:
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    expected = []
    for _ in range(3):
        for partition in range(3):
            expected += produce(cluster, 5, partition=partition)
        assert query.trigger()
    assert not query.trigger()
    query.stop()
    assert sorted(query.values()) == sorted(expected)
    assert [len(batch) for batch in query.batches] == [15, 15, 15]


def topic_id(cluster: Cluster, topic: str = "orders") -> uuid.UUID:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        return consumer.topic_ids([topic])[topic]


def test_the_offsets_hold_both_ends_of_every_range(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    query.trigger()
    produce(cluster, 2, partition=1)
    query.trigger()
    query.stop()
    found = [json.loads(text) for text in query.offset_log]
    assert [ends(each) for each in found] == [
        {"orders": {"0": 5, "1": 0, "2": 0}},
        {"orders": {"0": 5, "1": 2, "2": 0}},
    ]
    always = {"v": 2, "ids": {"orders": str(topic_id(cluster))}, "query": kept(found[0])["query"]}
    assert [kept(each) for each in found] == [
        always | {"from": {"orders": {"0": 0}}},
        always | {"from": {"orders": {"1": 0}}},
    ]


def test_query_goes_on_from_a_checkpoint_of_an_older_version(cluster: Cluster) -> None:
    query = Query(options(cluster, startingOffsets="earliest"))
    expected = produce(cluster, 5)
    query.start()
    query.trigger(finish=False)
    query.stop()
    (end,) = map(json.loads, query.offset_log)
    older = kept(end) | {"v": 1, "to": ends(end), "from": {"orders": {"0": 0, "1": 0, "2": 0}}}
    query.offset_log = [json.dumps(older)]
    query.start()
    assert query.values() == expected
    assert not query.trigger()
    expected += produce(cluster, 2, partition=1)
    query.trigger()
    query.stop()
    assert query.values() == expected
    assert kept(json.loads(query.offset_log[-1]))["query"] == older["query"]
    assert query.end() == {"orders": {"0": 5, "1": 2, "2": 0}}


@pytest.mark.parametrize("group", [{}, {"kafka_group_id": "billing"}])
def test_topic_created_after_an_empty_run_is_read_from_beginning(
    cluster: Cluster, group: dict[str, str]
) -> None:
    """``latest`` applies to partitions that exist when the query begins."""
    query = Query(options(cluster, subscribePattern="(?i)NEW.*", startingOffsets="latest", **group))
    query.run_available_now()
    assert query.values() == []
    cluster.create_topic("news", 1)
    expected = produce(cluster, 2, "news")
    query.run_available_now()
    assert query.values() == expected
    assert len({kept(json.loads(text))["query"] for text in query.offset_log}) == 1


def test_without_news_the_very_same_offset_is_returned(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    query.trigger()
    start = json.loads(query.offset_log[-1])
    assert query.reader.latestOffset(start, ReadAllAvailable()) is start
    query.stop()


def test_stream_starts_at_the_end_and_keeps_it_after_a_restart(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster))
    query.start()
    assert query.trigger()  # an empty batch with the start of the stream
    query.stop()
    expected = produce(cluster, 3)
    query.start()
    assert query.trigger()
    query.stop()
    assert query.values() == expected


def test_it_starts_where_json_says(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    given = options(cluster, startingOffsets='{"orders": {"0": 3, "1": -1, "2": -2}}')
    query = Query(given)
    query.start()
    assert query.trigger()
    query.stop()
    assert query.values() == expected[3:]


def test_a_batch_that_was_not_finished_is_read_again_just_so(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    query.trigger(finish=False)
    query.stop()
    produce(cluster, 5)
    query.start()  # reads it before any call of the driver
    assert query.values() == expected
    assert query.trigger()
    assert len(query.values()) == 10
    query.stop()


def test_replay_needs_neither_the_start_nor_a_cluster_to_plan(cluster: Cluster) -> None:
    query = Query(options(cluster))
    reader = stream_reader(options(cluster), "value binary")
    end = {"v": 1, "from": {"orders": {"0": 3}}, "to": {"orders": {"0": 9}}}
    (task,) = reader.partitions({"anything": 1}, end)
    assert [str(each) for each in task.ranges] == ["orders-0 [3, 9)"]
    assert reader.partitions(end, {"v": 1, "from": {}, "to": {}}) == []
    assert query.reader is None


def test_nothing_is_committed_without_a_group(cluster: Cluster) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.run_available_now()
    assert "OffsetCommit" not in {request.api for request in cluster.requests}


def test_available_now_ends_where_the_topic_ended(cluster: Cluster) -> None:
    expected = [each for p in range(3) for each in produce(cluster, 20, partition=p)]
    query = Query(options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=25))
    query.run_available_now()
    assert sorted(query.values()) == sorted(expected)
    assert [len(batch) for batch in query.batches] == [25, 25, 10]
    query.run_available_now()
    assert len(query.batches) == 3


def test_available_now_takes_no_notice_of_what_comes_later(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start(available_now=True)
    produce(cluster, 5)
    cluster.add_partitions("orders", 4)
    produce(cluster, 5, partition=3)
    while query.trigger():
        assert len(query.batches) < 5
    query.stop()
    assert query.values() == expected


def test_second_call_for_available_now_keeps_the_first_end(cluster: Cluster) -> None:
    expected = produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start(available_now=True)
    produce(cluster, 5)
    query.reader.prepareForTriggerAvailableNow()
    while query.trigger():
        assert len(query.batches) < 5
    query.stop()
    assert query.values() == expected


def test_partitions_that_are_added_are_read_from_their_beginning(cluster: Cluster) -> None:
    query = Query(options(cluster))  # startingOffsets=latest
    query.start()
    query.trigger()
    cluster.add_partitions("orders", 4)
    expected = produce(cluster, 5, partition=3)
    cluster.wait_until(query.trigger)
    query.stop()
    assert query.values() == expected


def test_topics_that_come_to_match_are_read_from_their_beginning(cluster: Cluster) -> None:
    query = Query(options(cluster, subscribePattern="orders-.*"))
    query.start()
    query.trigger()
    cluster.create_topic("orders-eu", 1)
    expected = produce(cluster, 5, "orders-eu")
    cluster.wait_until(query.trigger)
    query.stop()
    assert query.values() == expected


def test_limits() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    at = {a: 10, b: 0, c: 5}
    ends = {a: 110, b: 10, c: 5}
    assert limited_ends(at, ends, 110) == ends
    assert limited_ends(at, ends, 11) == {a: 20, b: 1, c: 5}
    assert limited_ends(at, ends, 1) == {a: 11, b: 0, c: 5}
    for most in range(1, 120):
        got = limited_ends(at, ends, most)
        assert sum(got.values()) - sum(at.values()) == min(most, 110)
        assert all(at[tp] <= got[tp] <= ends[tp] for tp in at)


def test_the_limit_comes_from_the_option(cluster: Cluster) -> None:
    def limit(**given: object) -> Any:
        made = stream_reader(options(cluster, **given), "value binary")
        return made.getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger=7) == ReadMaxRows(7)


def test_asked_for_all_the_option_does_not_limit(cluster: Cluster) -> None:
    produce(cluster, 20)
    query = Query(options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    query.start()
    found = query.reader.latestOffset(query.reader.initialOffset(), ReadAllAvailable())
    assert ends(found)["orders"]["0"] == 20
    query.stop()


def test_latest_offset_is_reported_as_by_sparks_own_source(cluster: Cluster) -> None:
    produce(cluster, 20)
    query = Query(options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    query.start()
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    assert query.reader.reportLatestOffset() == {"orders": {"0": 20, "1": 0, "2": 0}}
    query.stop()


def test_making_and_pickling_a_reader_does_no_io() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    reader = stream_reader(given, "value binary")
    assert reader.initialOffset() == StreamOffset().to_json()
    reader.getDefaultReadLimit()
    reader.commit({})
    reader.stop()
    pickle.loads(pickle.dumps(reader)).stop()


def test_a_running_reader_travels_without_its_consumer(cluster: Cluster) -> None:
    query = Query(options(cluster))
    query.start()
    query.trigger()
    assert query.reader._driver is not None
    assert pickle.loads(pickle.dumps(query.reader))._driver is None
    query.stop()


def test_a_topic_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    query = Query(options(cluster, subscribe="orderz"))
    query.start()
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic is called orderz"):
        query.trigger()
    query.stop()


def test_a_foreign_checkpoint_is_an_error(cluster: Cluster) -> None:
    query = Query(options(cluster))
    query.start()
    with pytest.raises(OffsetFormatError, match="written by another source"):
        query.reader.latestOffset({"offset": 5}, ReadAllAvailable())
    with pytest.raises(OffsetFormatError):
        query.reader.partitions({}, {"offset": 5})
    query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_was_made_anew(cluster: Cluster, fails: bool) -> None:
    produce(cluster, 20)
    query = Query(options(cluster, startingOffsets="earliest", failOnDataLoss=fails))
    query.run_available_now()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    expected = produce(cluster, 4)
    if fails:
        with pytest.raises(DataLossError, match="orders-0 ends at 4 but was read up to 20"):
            query.run_available_now()
        query.stop()
    else:
        query.run_available_now()
        assert query.values()[20:] == expected


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_gone(
    cluster: Cluster, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("returns", 1)
    produce(cluster, 5)
    produce(cluster, 5, "returns")
    given = options(cluster, startingOffsets="earliest", subscribe="orders,returns")
    query = Query(given | {"failOnDataLoss": str(fails)})
    query.start()
    query.trigger()
    cluster.delete_topic("returns")
    expected = produce(cluster, 1)
    if fails:
        with pytest.raises(DataLossError, match="returns-0 was deleted"):
            cluster.wait_until(query.trigger)
    else:
        with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
            cluster.wait_until(query.trigger)
        assert query.batches[-1][-1]["value"] == expected[0]
        assert query.end()["returns"] == {"0": 5}
    query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_records_deleted_before_they_were_read(cluster: Cluster, fails: bool) -> None:
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest", failOnDataLoss=fails))
    query.start()
    query.trigger()
    expected = produce(cluster, 10)
    delete_before(cluster, 9)
    if fails:
        with pytest.raises(DataLossError, match=r"orders-0 \[5, 9\)"):
            query.trigger()
    else:
        query.trigger()
        assert query.values()[5:] == expected[4:]
    query.stop()


class OutOfOrder:
    """A consumer whose calls fail while ``failing`` is set."""

    def __init__(self) -> None:
        self.failing = False
        self.ends = {TopicPartition("orders", 0): 5}
        self.asked = 0

    def _check(self) -> None:
        if self.failing:
            raise KafkaConnectionError("the broker is away")

    def topics(self) -> set[str]:
        self._check()
        return {"orders"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0}

    def beginning_offsets(
        self, partitions: list[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self._check()
        return dict.fromkeys(partitions, 0)

    def end_offsets(
        self, partitions: list[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        self.asked += 1
        self._check()
        return dict(self.ends)

    def topic_ids(self, topics: set[str], timeout_ms: float | None) -> dict[str, uuid.UUID]:
        self._check()
        return {}


Driven = tuple[Any, StreamDriver, Callable[[float], None]]


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Driven:
    monkeypatch.undo()
    consumer: Any = OutOfOrder()
    now = [0.0]
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    parsed = SourceOptions.parse(given, streaming=True)
    driver = StreamDriver(consumer, parsed, lambda: now[0], sleep=pass_time)
    return consumer, driver, pass_time


def test_an_idle_query_asks_the_brokers_seldom(driven: Driven) -> None:
    consumer, driver, pass_time = driven
    at = driver.next_offset(StreamOffset(), None)
    begun = driver._clock()
    for _ in range(100):
        pass_time(0.01)
        assert driver.next_offset(at, None) is at
    assert consumer.asked <= 12 * (driver._clock() - begun)


def test_next_offset_includes_records_present_at_the_call(driven: Driven) -> None:
    """After an unchanged offset, processAllAvailable() takes everything as read."""
    consumer, driver, pass_time = driven
    at = driver.next_offset(StreamOffset(), None)
    assert driver.next_offset(at, None) is at
    pass_time(0.01)
    consumer.ends = {TopicPartition("orders", 0): 6}
    assert driver.next_offset(at, None).end == {TopicPartition("orders", 0): 6}


def test_an_outage_makes_a_query_wait_and_not_fail(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, driver, pass_time = driven
    at = driver.next_offset(StreamOffset(), None)
    consumer.failing = True
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        for _ in range(5):
            pass_time(60)
            assert driver.next_offset(at, None) is at
    assert "could not be looked up: the broker is away" in caplog.text
    consumer.failing = False
    consumer.ends = {TopicPartition("orders", 0): 9}
    pass_time(60)
    assert driver.next_offset(at, None).end == {TopicPartition("orders", 0): 9}


def test_a_cluster_that_was_never_reached_is_an_error(driven: Driven) -> None:
    consumer, driver, _ = driven
    consumer.failing = True
    with pytest.raises(KafkaConnectionError):
        driver.next_offset(StreamOffset(), None)


def test_offset_of_an_idle_query_is_parsed_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes 7 ms for 1,000 partitions."""
    produce(cluster, 5)
    query = Query(options(cluster, startingOffsets="earliest"))
    query.start()
    query.trigger()
    parsed: list[object] = []
    parse = StreamOffset.from_json

    def counted(value: object) -> StreamOffset:
        parsed.append(value)
        return parse(value)

    monkeypatch.setattr(StreamOffset, "from_json", counted)
    for _ in range(5):
        start = json.loads(query.offset_log[-1])  # Spark sends it each time
        assert query.reader.latestOffset(start, ReadAllAvailable()) is start
    assert len(parsed) == 1
    produce(cluster, 5)
    cluster.wait_until(query.trigger)
    assert query.end()["orders"]["0"] == 10
    query.stop()


def test_headers_in_a_stream(cluster: Cluster) -> None:
    cluster.produce("orders", [ProducerRecord(b"v", headers=[("h", b"1")], partition=0)])
    made = source(options(cluster, includeHeaders=True))
    assert "headers" in made.schema()
