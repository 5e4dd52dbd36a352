"""Records, iteration and deserializers are those of kafka-python."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.compat.kafka_python.conftest import MakeConsumer
from tests.compat.kafka_python.kit import poll_until
from tests.interop.brokers import Broker

FIELDS = (
    "topic partition leader_epoch offset timestamp timestamp_type key value headers checksum "
    "serialized_key_size serialized_value_size serialized_header_size"
).split()


def test_records_are_tuples_with_a_list_of_headers(
    broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value", key=b"key", headers=[("a", b"1"), ("a", None)], timestamp=1234)
    broker.write(topic, None, timestamp=1234)
    first, second = poll_until(make(topic), 2)
    assert list(first._asdict()) == FIELDS
    assert first[:2] == (topic, 0)
    assert (first.offset, first.timestamp, first.timestamp_type) == (0, 1234, 0)
    assert (first.key, first.value, first.checksum) == (b"key", b"value", None)
    assert first.headers == [("a", b"1"), ("a", None)]
    assert first[10:] == (3, 5, 3)
    assert {(first.key, first.value)} == {(b"key", b"value")}
    assert (second.key, second.value, second.headers) == (None, None, [])
    assert second[10:] == (-1, -1, -1)


def test_keys_of_poll_are_topic_partitions_of_the_package(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value", partition=1)
    consumer = make()
    consumer.assign([compat.TopicPartition(topic, 1)])
    while not (found := consumer.poll(timeout_ms=100)):
        pass
    assert list(found) == [compat.TopicPartition(topic, 1)]
    assert all(type(tp) is compat.TopicPartition for tp in {*found, *consumer.assignment()})
    assert type(found[compat.TopicPartition(topic, 1)][0]) is compat.ConsumerRecord


def test_poll_repeats_records_when_offsets_are_not_updated(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broker.write(topic, b"value")
    consumer = make()
    consumer.assign([compat.TopicPartition(topic, 0)])
    while not (first := consumer.poll(timeout_ms=100, update_offsets=False)):
        pass
    assert consumer.position(compat.TopicPartition(topic, 0)) == 0
    assert poll_until(consumer, 1) == first[compat.TopicPartition(topic, 0)]


def test_poll_raises_for_wrong_arguments(compat: Any, make: MakeConsumer) -> None:
    consumer = make()
    with pytest.raises(ValueError, match="Timeout must not be negative"):
        consumer.poll(timeout_ms=-1)
    with pytest.raises(ValueError, match="max_records must be positive"):
        consumer.poll(max_records=0)
    with pytest.raises(TypeError, match="max_records must be an integer"):
        consumer.poll(max_records="1")
    consumer.close()
    with pytest.raises(compat.errors.IllegalStateError):
        consumer.poll()


def test_deserializers_get_a_list_of_headers_and_none(
    compat: Any, broker: Broker, topic: str, make: MakeConsumer
) -> None:
    calls: list[Any] = []

    class Upper(compat.Deserializer):  # type: ignore[misc]
        def deserialize(self, topic: str, headers: Any, data: bytes | None) -> Any:
            calls.append((headers, data))
            return "nothing" if data is None else data.decode().upper()

        def close(self) -> None:
            calls.append("closed")

    broker.write(topic, b"tea", headers=[("a", b"1")])
    broker.write(topic, None)
    consumer = make(topic, value_deserializer=Upper())
    assert [record.value for record in poll_until(consumer, 2)] == ["TEA", "nothing"]
    consumer.close()
    assert calls == [([("a", b"1")], b"tea"), ([], None), "closed"]


@pytest.mark.filterwarnings("ignore:value_deserializer does not:DeprecationWarning")
def test_deserializer_error_is_raised_and_nothing_is_skipped(
    broker: Broker, topic: str, make: MakeConsumer
) -> None:
    broken = True

    def decode(data: bytes | None) -> str:
        if broken and data in (None, b"bad"):
            raise LookupError("no schema")
        return str(data)

    for value in (b"good", None, b"bad"):
        broker.write(topic, value)
    consumer = make(topic, value_deserializer=decode)
    values: list[str] = []
    with pytest.raises(LookupError):
        while True:
            for batch in consumer.poll(timeout_ms=100).values():
                values += [record.value for record in batch]
    broken = False
    values += [record.value for record in poll_until(consumer, 3 - len(values))]
    assert values == ["b'good'", "None", "b'bad'"]


def iterated(consumer: Any, count: int) -> list[Any]:
    """Iterate until the end, again if the first fetch took longer than the consumer's timeout."""
    values: list[Any] = []
    deadline = time.monotonic() + 90
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in consumer]
    return values


@pytest.mark.cases(2)  # each waits for a timeout
def test_iteration_ends_after_the_timeout_and_when_closed(
    broker: Broker, topic: str, make: MakeConsumer
) -> None:
    for value in (b"a", b"b"):
        broker.write(topic, value)
    consumer = make(topic, consumer_timeout_ms=1000)
    assert iterated(consumer, 2) == [b"a", b"b"]
    consumer.close()
    with pytest.raises(StopIteration):
        next(consumer)


@pytest.mark.cases(2)  # each waits for a timeout
def test_wrapped_next_sees_each_record_of_iteration(
    compat: Any,
    broker: Broker,
    topic: str,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []
    original = compat.KafkaConsumer.__next__

    def traced(consumer: Any) -> Any:
        record = original(consumer)
        assert consumer.config.get("bootstrap_servers") == broker.bootstrap_servers
        record.headers.append(("traced", b""))
        seen.append(record.value)
        return record

    monkeypatch.setattr(compat.KafkaConsumer, "__next__", traced)
    for value in (b"a", b"b", b"c"):
        broker.write(topic, value)
    consumer = make(topic, consumer_timeout_ms=1000)
    assert iterated(consumer, 3) == seen == [b"a", b"b", b"c"]
