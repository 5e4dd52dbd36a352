"""Positions, commits and transactions behave as with kafka-python's consumer."""

from __future__ import annotations

from typing import Any

import kafka
import pytest

import kohort.compat.kafka_python as package
from tests.compat.kafka_python.conftest import MakeConsumer
from tests.compat.kafka_python.kit import poll_until
from tests.interop.brokers import Broker
from tests.support.net import free_ports


def test_metadata_of_a_commit_is_text(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer, tp = make(group_id=group), compat.TopicPartition(topic, 0)
    assert consumer.committed(tp) is None
    consumer.commit({tp: compat.OffsetAndMetadata(3, {"by": 1}, -1)})
    assert consumer.committed(tp) == 3
    found = consumer.committed(tp, metadata=True)
    assert found == compat.OffsetAndMetadata(3, "{'by': 1}", -1)
    assert type(found) is compat.OffsetAndMetadata
    consumer.commit({})


def test_commits_raise_for_wrong_arguments(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer, tp = make(group_id=group), compat.TopicPartition(topic, 0)
    for wrong in ({"a": compat.OffsetAndMetadata(1, "", -1)}, {tp: "1"}):
        with pytest.raises(TypeError, match="offsets must be dict"):
            consumer.commit(wrong)
    with pytest.raises(TypeError, match="partition must be a TopicPartition"):
        consumer.committed([tp])
    with compat.KafkaConsumer(api_version=(4, 0)) as groupless:
        for call in (groupless.commit, groupless.commit_async, lambda: groupless.committed(tp)):
            with pytest.raises(compat.errors.IllegalStateError, match="Requires group_id"):
                call()
        assert groupless.group_metadata() == compat.ConsumerGroupMetadata(group_id=None)


def test_commit_async_returns_a_future_and_calls_back(
    compat: Any, broker: Broker, topic: str, group: str, make: MakeConsumer
) -> None:
    for _ in range(2):
        broker.write(topic, b"value")
    consumer, tp = make(topic, group_id=group, enable_auto_commit=False), (topic, 0)
    poll_until(consumer, 2)
    calls: list[Any] = []
    results: list[Any] = []
    future = consumer.commit_async(callback=lambda *arguments: calls.append(arguments))
    future.add_both(results.append)
    while not (future.is_done and calls):
        consumer.poll(timeout_ms=50)
    assert future.succeeded() and not future.failed() and results == [None]
    [(offsets, error)] = calls
    assert error is None
    assert offsets[compat.TopicPartition(*tp)].offset == 2
    assert type(next(iter(offsets.values()))) is compat.OffsetAndMetadata
    assert consumer.committed(compat.TopicPartition(*tp)) == 2


def test_position_is_none_when_it_is_not_known_in_time(compat: Any) -> None:
    server, tp = f"localhost:{free_ports(1)[0]}", compat.TopicPartition("a", 0)
    with compat.KafkaConsumer(bootstrap_servers=server, api_version=(4, 0)) as consumer:
        consumer.assign([tp])
        assert consumer.position(tp, timeout_ms=100) is None


def test_positions_raise_for_unassigned_partitions(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value")
    consumer, tp, other = make(), compat.TopicPartition(topic, 0), compat.TopicPartition(topic, 1)
    with pytest.raises(ValueError, match="No partitions are currently assigned"):
        consumer.seek_to_end()
    consumer.assign([tp])
    with pytest.raises(ValueError, match="Unassigned partition"):
        consumer.seek(other, 1)
    with pytest.raises(ValueError, match="Unassigned partition"):
        consumer.seek_to_beginning(other)
    with pytest.raises(ValueError, match="Offset must be int >= 0"):
        consumer.seek(tp, -1)
    for call in (consumer.position, consumer.highwater):
        with pytest.raises(compat.errors.IllegalStateError, match="Partition is not assigned"):
            call(other)
    for call in (consumer.position, consumer.highwater, consumer.pause, consumer.resume):
        with pytest.raises(TypeError, match="TopicPartition namedtuple"):
            call("t")
    consumer.seek_to_end(tp)
    assert consumer.position(tp) == 1
    consumer.seek_to_beginning()
    assert [record.value for record in poll_until(consumer, 1)] == [b"value"]
    assert consumer.highwater(tp) == 1
    consumer.pause(tp)
    assert consumer.paused() == {tp}


def test_offsets_are_looked_up_by_time(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"a", timestamp=1000)
    broker.write(topic, b"b", timestamp=2000)
    consumer, tp = make(), compat.TopicPartition(topic, 0)
    found = consumer.offsets_for_times({tp: 1500})
    assert (found[tp].offset, found[tp].timestamp) == (1, 2000)
    assert type(found[tp]) is compat.OffsetAndTimestamp
    assert consumer.offsets_for_times({tp: 3000}) == {tp: None}
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 2}
    with pytest.raises(ValueError, match="cannot be negative"):
        consumer.offsets_for_times({tp: -1})
    with pytest.raises(compat.errors.KafkaTimeoutError):
        consumer.offsets_for_times({compat.TopicPartition(topic, 9): 1}, timeout_ms=300)


@pytest.mark.parametrize("compat", ["with kafka-python"], indirect=True)
def test_kafka_producer_commits_offsets_in_a_transaction(
    broker: Broker, topic: str, group: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value")
    consumer = make(topic, group_id=group, enable_auto_commit=False)
    [record] = poll_until(consumer, 1)
    tp = package.TopicPartition(record.topic, record.partition)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"copy-{group}"
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"copy", partition=1)
        producer.send_offsets_to_transaction(
            {tp: package.OffsetAndMetadata(record.offset + 1, "", -1)}, consumer.group_metadata()
        )
        producer.commit_transaction()
    finally:
        producer.close()
    assert consumer.committed(tp) == 1


def test_close_commits_unless_an_exception_leaves_the_block(
    compat: Any, broker: Broker, topic: str, group: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value")
    tp = compat.TopicPartition(topic, 0)
    with pytest.raises(LookupError), make(topic, group_id=group) as consumer:
        poll_until(consumer, 1)
        raise LookupError
    assert make(group_id=group).committed(tp) is None
    with make(topic, group_id=group) as consumer:
        poll_until(consumer, 1)
    assert make(group_id=group).committed(tp) == 1
