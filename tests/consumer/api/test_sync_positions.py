"""Positions, pauses and iteration of KafkaConsumer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaTimeoutError, NotAssignedError
from kohort.testing import Cluster, ProducerRecord
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until, read, values

LETTERS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    """A partition with four records."""
    cluster.produce(topic, LETTERS, partition=0)
    return TopicPartition(topic, 0)


@pytest.fixture
def consumer(make: MakeConsumer, tp: TopicPartition) -> KafkaConsumer:
    """A consumer that reads the partition without a group."""
    consumer = make()
    consumer.assign([tp])
    return consumer


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """Return the values of this many steps of iteration."""
    return [next(consumer).value for _ in range(count)]


def test_nothing_is_fetched_from_the_end_of_a_range_on(
    make: MakeConsumer, cluster: Cluster, topic: str
) -> None:
    tp = TopicPartition(topic, 0)
    for letter in LETTERS:
        cluster.produce(topic, [letter], partition=0)
    consumer = make(max_partition_fetch_bytes=1)  # one batch per fetch
    consumer.assign([tp])
    consumer.seek(tp, 0, until=2)
    assert values(read(consumer, 2)) == LETTERS[:2]
    assert consumer.poll(timeout_ms=100) == {}
    consumer.seek(tp, 2)
    assert values(read(consumer, 2)) == LETTERS[2:]
    consumer.seek(tp, 3, until=1)
    assert consumer.poll(timeout_ms=100) == {}
    consumer.seek_to_beginning(tp)
    assert values(read(consumer, 4)) == LETTERS


def test_a_seek_is_checked(consumer: KafkaConsumer, tp: TopicPartition) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        consumer.seek(tp, -1)
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(TypeError):
            consumer.seek(tp, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="until must be at least 0"):
        consumer.seek(tp, 0, until=-1)
    with pytest.raises(NotAssignedError, match=f"{tp.topic}-1 is not assigned"):
        consumer.seek(TopicPartition(tp.topic, 1), 0)


def test_seeking_the_ends_of_nothing_is_refused(make: MakeConsumer) -> None:
    with pytest.raises(NotAssignedError, match="no partitions are assigned"):
        make().seek_to_end()


def test_position_follows_returned_and_not_fetched_records(
    consumer: KafkaConsumer, tp: TopicPartition
) -> None:
    assert consumer.position(tp) == 0
    while not consumer.poll(200, max_records=1):
        pass
    assert consumer.position(tp) == 1
    with pytest.raises(NotAssignedError):
        consumer.position(TopicPartition(tp.topic, 1))


def test_position_is_none_when_it_does_not_come_in_time(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.bootstrap()
    with cluster.network_partition():
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(KafkaTimeoutError):
            consumer.position(TopicPartition(topic, 0), timeout_ms=50)
    assert consumer.position(TopicPartition(topic, 0)) == 0


@pytest.mark.parametrize(
    ("back", "expected"), [("PT1H30M", [b"recent", b"new"]), ("PT30M", [b"new"])]
)
def test_a_duration_says_how_far_back_to_start(
    cluster: Cluster, topic: str, make: MakeConsumer, group: str, back: str, expected: list[bytes]
) -> None:
    tp, hour_ms, now_ms = TopicPartition(topic, 0), 3_600_000, int(time.time() * 1000)
    for value, age in (("old", 2 * hour_ms), ("recent", hour_ms)):
        record = ProducerRecord(value, timestamp=now_ms - age, partition=0)
        cluster.produce(topic, [record])
    consumer = make(group_id=group, auto_offset_reset=f"by_duration:{back}")
    consumer.assign([tp])
    assert consumer.position(tp) == 3 - len(expected)
    cluster.produce(topic, [b"new"], partition=0)
    assert values(read(consumer, len(expected))) == expected
    consumer.seek(tp, 70)  # out of range
    assert values(read(consumer, len(expected))) == expected


def test_a_pause_holds_back_what_is_buffered_and_keeps_it(
    cluster: Cluster, consumer: KafkaConsumer, tp: TopicPartition
) -> None:
    read_one = consumer.poll(60_000, max_records=1)
    assert values(read_one[tp]) == LETTERS[:1]
    consumer.pause(tp)
    assert consumer.paused() == {tp}
    fetches = len([r for r in cluster.requests if r.api == "Fetch"])
    assert consumer.poll(100) == {}
    consumer.resume(tp)
    assert consumer.paused() == set()
    assert values(consumer.poll(60_000)[tp]) == LETTERS[1:]
    assert len([r for r in cluster.requests if r.api == "Fetch"]) - fetches <= 1
    with pytest.raises(NotAssignedError):
        consumer.pause(TopicPartition(tp.topic, 1))
    with pytest.raises(TypeError):
        consumer.pause([tp])  # type: ignore[arg-type]


def test_iteration_ends_after_consumer_timeout_and_can_resume(
    cluster: Cluster, make: MakeConsumer, tp: TopicPartition
) -> None:
    consumer = make(consumer_timeout_ms=300)
    consumer.assign([tp])
    consumer.seek(tp, 4)
    begun = time.monotonic()
    assert list(consumer) == []
    assert 0.3 <= time.monotonic() - begun < 60
    cluster.produce(tp.topic, [b"e"], partition=0)
    while not (seen := list(consumer)):
        pass
    assert values(seen) == [b"e"]


def test_a_seek_between_two_steps_of_iteration_counts(
    consumer: KafkaConsumer, tp: TopicPartition
) -> None:
    assert next(consumer).value == b"a"
    consumer.seek(tp, 3)
    assert next(consumer).value == b"d"
    consumer.seek(tp, 0)
    assert take(consumer, 4) == LETTERS


def test_poll_and_iteration_can_be_mixed(consumer: KafkaConsumer, tp: TopicPartition) -> None:
    assert next(consumer).value == b"a"
    assert values(consumer.poll(1_000, max_records=1)[tp]) == [b"b"]
    assert next(consumer).value == b"c"
    assert values(consumer.poll(1_000)[tp]) == [b"d"]
    assert consumer.position(tp) == 4


def test_what_iteration_has_not_given_yet_is_not_committed(
    cluster: Cluster, make: MakeConsumer, tp: TopicPartition, group: str
) -> None:
    consumer = make(tp.topic, group_id=group)
    assert next(consumer).value == b"a"
    assert next(consumer).value == b"b"
    consumer.close()
    assert cluster.committed(group)[tp].offset == 2


def test_a_subscription_given_up_in_iteration_drops_what_is_left(
    cluster: Cluster, make: MakeConsumer, tp: TopicPartition, group: str
) -> None:
    consumer = make(tp.topic, group_id=group)
    assert next(consumer).value == b"a"
    consumer.unsubscribe()
    assert consumer.poll(100) == {}


def test_a_new_member_continues_where_the_group_has_committed(
    cluster: Cluster, make: MakeConsumer, tp: TopicPartition, group: str
) -> None:
    first = make(tp.topic, group_id=group)
    while not first.poll(200, max_records=3):
        pass
    first.close()
    second = make(tp.topic, group_id=group)
    assert values(read(second, 1)) == LETTERS[3:]
    poll_until(second, lambda: second.position(TopicPartition(tp.topic, 1)) == 0)
