"""The methods of KafkaConsumer, each at least once, with the shapes they return."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kohort import KafkaConsumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    KafkaTimeoutError,
    NotAssignedError,
)
from kohort.testing import Cluster, ProducerRecord
from kohort.types import ConsumerGroupMetadata
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until, read, values


def test_poll_returns_records_by_partition(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"b"], partition=0)
    consumer = make(topic, value_deserializer=bytes.decode)
    polled = poll_records(consumer)
    assert polled.keys() == {TopicPartition(topic, 0)}
    assert [(r.offset, r.value) for r in polled[TopicPartition(topic, 0)]] == [(0, "a"), (1, "b")]
    assert consumer.poll() == {}


def poll_records(consumer: KafkaConsumer) -> Any:
    for _ in range(100):
        if polled := consumer.poll(timeout_ms=200, max_records=10):
            return polled
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timeout_ms": -1}, ValueError),
        ({"timeout_ms": math.nan}, ValueError),
        ({"timeout_ms": "1"}, TypeError),
        ({"max_records": 0}, ValueError),
        ({"max_records": 1.5}, TypeError),
        ({"max_records": True}, TypeError),
    ],
)
def test_poll_refuses_wrong_arguments(
    make: MakeConsumer, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make().poll(**arguments)


@pytest.mark.parametrize("for_ever", [math.inf, 10**400, 1e300])
def test_poll_can_be_told_to_wait_for_ever(
    cluster: Cluster, topic: str, make: MakeConsumer, for_ever: float
) -> None:
    cluster.produce(topic, [b"x"])
    consumer = make(topic, group_id=None)
    assert [r.value for part in consumer.poll(for_ever).values() for r in part] == [b"x"]


def test_max_records_bounds_a_poll(cluster: Cluster, topic: str, make: MakeConsumer) -> None:
    cluster.produce(topic, [b"1", b"2", b"3"], partition=0)
    consumer = make(topic, max_poll_records=2)
    sizes: list[int] = []
    while sum(sizes) < 3:
        sizes += [len(part) for part in consumer.poll(500).values()]
    assert sizes == [2, 1]
    consumer.seek(TopicPartition(topic, 0), 0)
    while not (polled := consumer.poll(500, max_records=1)):
        pass
    assert [len(part) for part in polled.values()] == [1]


def test_assign_reads_without_a_group(cluster: Cluster, topic: str, make: MakeConsumer) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    cluster.produce(topic, [b"b"], partition=1)
    consumer = make()
    assert consumer.assign([TopicPartition(topic, 1)]) is None  # type: ignore[func-returns-value]
    assert consumer.assignment() == {TopicPartition(topic, 1)}
    assert values(read(consumer, 1)) == [b"b"]
    assert consumer.subscription() == set()
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        consumer.subscribe([topic])
    consumer.assign([TopicPartition(topic, 0)])
    assert values(read(consumer, 1)) == [b"a"]
    consumer.assign([])
    consumer.subscribe([topic])
    assert consumer.subscription() == {topic}
    with pytest.raises(IllegalStateError):
        consumer.assign([TopicPartition(topic, 1)])


def test_assign_takes_the_partitions_of_other_clients(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.assign([(topic, 0)])  # type: ignore[list-item]
    assert consumer.assignment() == {TopicPartition(topic, 0)}
    with pytest.raises(TypeError, match="list of TopicPartition"):
        consumer.assign(TopicPartition(topic, 0))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        consumer.assign([topic])  # type: ignore[list-item]


def test_a_subscription_without_a_group_is_all_partitions(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    cluster.produce(topic, [b"b"], partition=1)
    consumer = make(topic, group_id=None)
    assert sorted(values(read(consumer, 2))) == [b"a", b"b"]
    assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert consumer.group_metadata() == ConsumerGroupMetadata()
    for refused in (consumer.commit, consumer.commit_async):
        with pytest.raises(IllegalStateError, match="group_id"):
            refused()
    with pytest.raises(IllegalStateError, match="group_id"):
        consumer.committed(TopicPartition(topic, 0))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"topics": ["a"], "pattern": "b"}, IllegalStateError),
        ({"topics": "orders"}, TypeError),
        ({"topics": [1]}, TypeError),
        ({"topics": ["a b"]}, ValueError),
        ({"topics": [".."]}, ValueError),
        ({"topics": ["x" * 250]}, ValueError),
        ({"pattern": "("}, ValueError),
        ({"pattern": b"a"}, TypeError),
        ({"topics": ["a"], "listener": object()}, TypeError),
    ],
)
def test_subscribe_refuses_wrong_arguments(
    make: MakeConsumer, arguments: dict[str, Any], error: type[Exception]
) -> None:
    consumer = make()
    with pytest.raises(error):
        consumer.subscribe(**arguments)
    assert consumer.subscription() == set()


def test_what_the_cluster_knows_can_be_asked(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    consumer = make()
    assert consumer.bootstrap_connected() is False
    assert consumer.bootstrap() is None  # type: ignore[func-returns-value]
    consumer.bootstrap(timeout_ms=5_000, refresh=True)
    assert consumer.bootstrap_connected() is True
    assert topic in consumer.topics()
    assert consumer.partitions_for_topic(topic) == {0, 1}
    assert consumer.partitions_for_topic("nobody-made-this") == set()
    consumer.close()
    assert consumer.bootstrap_connected() is False


def test_a_topic_made_anew_has_another_id(cluster: Cluster, topic: str, make: MakeConsumer) -> None:
    consumer = make(group_id=None)
    first = consumer.topic_ids([topic, "nobody-made-this"])
    assert first.keys() == {topic}
    assert consumer.topic_ids([topic]) == first
    cluster.delete_topic(topic)
    assert consumer.topic_ids([topic]) == {}
    cluster.create_topic(topic, 2)
    second = consumer.topic_ids([topic])
    assert second.keys() == {topic}
    assert second != first
    assert "nobody-made-this" not in consumer.topics(), "asking creates none"


def test_offsets_are_found_by_end_and_by_time(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    records = [ProducerRecord(b"x", timestamp=stamp, partition=0) for stamp in (1000, 2000, 3000)]
    cluster.produce(topic, records)
    consumer = make()
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second], timeout_ms=5_000) == {first: 3, second: 0}
    asked = {first: 1500, second: 1500}
    found = consumer.offsets_for_times(asked)
    assert found == {first: OffsetAndTimestamp(1, 2000, 0), second: None}
    assert asked == {first: 1500, second: 1500}
    with pytest.raises(ValueError, match="at least 0"):
        consumer.offsets_for_times({first: -5})
    wrong: list[Any] = ["1500", None, True, math.nan, [1500]]
    for value in wrong:
        with pytest.raises(TypeError, match=r"the timestamp of .* must be an int"):
            consumer.offsets_for_times({first: value})
    computed: Any = 1500.0
    assert consumer.offsets_for_times({first: computed})[first] is not None
    with cluster.network_partition(), pytest.raises(KafkaTimeoutError):
        consumer.end_offsets([first], timeout_ms=50)


def test_metrics_are_figures_by_group_and_name(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"b"], partition=0)
    consumer = make()
    consumer.assign([TopicPartition(topic, 0)])
    assert consumer.highwater(TopicPartition(topic, 0)) is None
    read(consumer, 2)
    assert consumer.highwater(TopicPartition(topic, 0)) == 2
    with pytest.raises(NotAssignedError):
        consumer.highwater(TopicPartition(topic, 1))
    figures = consumer.metrics()
    assert figures is not None
    assert figures["consumer-fetch-manager-metrics"]["records-consumed-total"] == 2
    of_partition = figures[f"consumer-fetch-manager-metrics.{topic}-0"]
    assert of_partition == {"records-lag": 0, "records-lead": 2}
    assert make(metrics_enabled=False).metrics() is None


def test_the_membership_can_be_seen(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group)
    assert consumer.group_metadata() == ConsumerGroupMetadata(group, -1, "", None, "<unjoined>")
    poll_until(consumer, consumer.assignment)
    (member,) = cluster.group(group).members
    seen = consumer.group_metadata()
    generation = cluster.group(group).generation
    assert (seen.group_id, seen.generation_id) == (group, generation)
    assert seen.member_id == member.member_id
    assert seen.state in ("<stable>", "<rebalancing>")


def test_properties_of_other_clients_make_a_consumer(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.produce(topic, [b"7"])
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    with KafkaConsumer.from_properties(properties, topic, value_deserializer=int) as consumer:
        assert values(read(consumer, 1)) == [7]
    assert sum(at.offset for at in cluster.committed(group).values()) == 1


def test_a_closed_consumer_says_so(topic: str, make: MakeConsumer) -> None:
    consumer = make(topic)
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.topics, consumer.unsubscribe, consumer.commit):
        with pytest.raises(ConsumerClosedError, match="Create a new one"):
            call()
    assert list(consumer) == []


def test_offsets_may_be_given_in_all_the_shapes(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    tp = TopicPartition(topic, 0)
    consumer = make(group_id=group)
    consumer.assign([tp])
    assert consumer.committed(tp) is None
    for offsets, stored in [
        ({tp: 3}, OffsetAndMetadata(3, "", -1)),
        ({tp: (4, "why")}, OffsetAndMetadata(4, "why", -1)),
        ({tp: (5, "why", 0)}, OffsetAndMetadata(5, "why", 0)),
        ({tp: OffsetAndMetadata(6, "m", 0)}, OffsetAndMetadata(6, "m", 0)),
    ]:
        consumer.commit(offsets)  # type: ignore[arg-type]
        assert consumer.committed(tp, metadata=True) == stored
        assert consumer.committed(tp) == stored.offset
    for wrong in ({tp: -1}, {tp: "1"}, {tp: None}, {"x": 1}, [tp], {tp: (1, 2)}):
        with pytest.raises((TypeError, ValueError)):
            consumer.commit(wrong)  # type: ignore[arg-type]
