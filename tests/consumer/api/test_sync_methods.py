"""Methods of KafkaConsumer. ``test_methods.py`` has those with one text for both APIs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kohort import OffsetAndMetadata, TopicPartition
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    NotAssignedError,
)
from kohort.testing import Cluster
from kohort.types import ConsumerGroupMetadata
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until, read, values


@pytest.mark.parametrize("for_ever", [math.inf, 10**400, 1e300])
def test_poll_can_be_told_to_wait_for_ever(
    cluster: Cluster, topic: str, make: MakeConsumer, for_ever: float
) -> None:
    cluster.produce(topic, [b"x"])
    consumer = make(topic, group_id=None)
    assert [r.value for part in consumer.poll(for_ever).values() for r in part] == [b"x"]


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
    assert of_partition == {"records-lag": 0, "records-lead": 2, "lag-seconds": 0}
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
