"""Streams with data loss on Apache Kafka, in Spark's order of calls, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kohort.spark_connector import _reading
from kohort.spark_connector._consumers import close_idle
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._ranges import OffsetRange
from tests.spark_connector.reading import Query
from tests.support.kafka_server import KafkaServer
from tests.support.topics import await_leaders

pytestmark = pytest.mark.real_kafka

DEADLINE = 90.0


class Topic:
    """A topic in Apache Kafka, and operations that lose its records."""

    def __init__(self, kafka: KafkaServer, name: str) -> None:
        self.name = name
        self._servers: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap_servers
        }
        self.admin = AdminClient(self._servers)
        self.create()

    def create(self) -> None:
        """Create the topic with one partition and with compaction as soon as possible."""
        config = {"cleanup.policy": "compact,delete", "segment.ms": "1000"}
        config["min.cleanable.dirty.ratio"] = "0.01"
        (made,) = self.admin.create_topics([NewTopic(self.name, 1, 1, config=config)]).values()
        made.result(DEADLINE)
        await_leaders(self.admin, self.name, 1)

    def delete(self) -> None:
        (gone,) = self.admin.delete_topics([self.name]).values()
        gone.result(DEADLINE)

    def grow(self, partitions: int) -> None:
        (done,) = self.admin.create_partitions([NewPartitions(self.name, partitions)]).values()
        done.result(DEADLINE)
        await_leaders(self.admin, self.name, partitions)

    def delete_before(self, offset: int) -> None:
        place = ConfluentPartition(self.name, 0, offset)
        (done,) = self.admin.delete_records([place]).values()
        done.result(DEADLINE)

    def produce(
        self, word: str, count: int, partition: int = 0, keys: int = 1 << 30
    ) -> list[bytes]:
        producer = Producer(self._servers)
        made = [f"{word}-{number}".encode() for number in range(count)]
        for number, value in enumerate(made):
            key = f"{word}-{number % keys}" if keys < count else value
            producer.produce(self.name, value, key, partition=partition)
        producer.flush(DEADLINE)
        return made


@pytest.fixture
def topic(kafka: KafkaServer, unique: Callable[[str], str]) -> Iterator[Topic]:
    yield Topic(kafka, unique("loss"))
    close_idle()


@pytest.fixture(params=["alone", "member"])
def make(
    request: pytest.FixtureRequest, kafka: KafkaServer, topic: Topic
) -> Iterator[Callable[[bool], Query]]:
    """A function that creates queries. ``fails`` sets failOnDataLoss."""
    made: list[Query] = []

    def query(fails: bool) -> Query:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            "failOnDataLoss": str(fails),
        }
        if request.param == "member":
            given["kafka.group.id"] = f"{topic.name}-{len(made)}"
        made.append(Query(given))
        return made[-1]

    yield query
    for each in made:
        if each.reader is not None:
            each.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_is_noticed_though_it_is_longer(
    topic: Topic, make: Callable[[bool], Query], fails: bool
) -> None:
    topic.produce("old", 20)
    query = make(fails)
    query.run_available_now()
    topic.delete()
    topic.create()
    expected = topic.produce("new", 30)
    if fails:
        with pytest.raises(DataLossError, match=f"topic {topic.name} was deleted and recreated"):
            query.run_available_now()
        return
    query.run_available_now()
    assert query.values()[20:] == expected
    more = topic.produce("more", 3)
    query.run_available_now()
    assert query.values()[50:] == more


@pytest.mark.parametrize("fails", [True, False])
def test_what_retention_took_is_named_to_the_offset(
    topic: Topic, make: Callable[[bool], Query], fails: bool
) -> None:
    topic.produce("a", 5)
    query = make(fails)
    query.run_available_now()
    expected = topic.produce("b", 10)
    topic.delete_before(9)
    if fails:
        with pytest.raises(DataLossError, match="no longer in the log") as caught:
            query.run_available_now()
        assert caught.value.ranges == (OffsetRange(topic.name, 0, 5, 9),)
        return
    query.run_available_now()
    assert query.values()[5:] == expected[4:]


@pytest.mark.parametrize("left", [None, 4])
@pytest.mark.parametrize("fails", [True, False])
def test_the_replay_of_a_batch_whose_topic_is_gone_or_shorter(
    topic: Topic,
    make: Callable[[bool], Query],
    fails: bool,
    left: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_reading, "CHECK_S", 0.2)
    topic.produce("old", 20)
    query = make(fails)
    query.start()
    query.trigger(finish=False)
    query.stop()
    topic.delete()
    expected: list[bytes] = []
    if left is not None:
        topic.create()
        expected = topic.produce("new", left)
    if fails:
        with pytest.raises(DataLossError, match="no longer in the log") as caught:
            query.start()
        assert caught.value.ranges == (OffsetRange(topic.name, 0, 0, 20),)
        return
    query.start()
    assert query.values() == []
    if left is not None:
        query.stop()
        query.run_available_now()
        assert query.values() == expected


def test_added_partitions_are_read_from_their_beginning(
    topic: Topic, make: Callable[[bool], Query]
) -> None:
    topic.produce("a", 5)
    query = make(True)
    query.run_available_now()
    topic.grow(3)
    expected = topic.produce("b", 4, partition=2)
    query.run_available_now()
    assert query.values()[5:] == expected
    assert query.end() == {topic.name: {"0": 5, "1": 0, "2": 4}}


@pytest.mark.long
def test_gaps_of_compaction_are_no_loss(topic: Topic, make: Callable[[bool], Query]) -> None:
    # A later record closes a segment, and the cleaner runs every 15 s.
    for _ in range(3):
        made = topic.produce("a", 30, keys=10)
        time.sleep(1.1)
    expected = made[20:] + topic.produce("b", 1)
    until = time.monotonic() + DEADLINE
    while True:
        query = make(True)
        query.run_available_now()
        if len(query.values()) < 91 or time.monotonic() > until:
            break
        time.sleep(1)
    assert set(expected) <= set(query.values())
    assert len(query.values()) < 91
    assert query.end() == {topic.name: {"0": 91}}
