"""Records that are damaged or fail to deserialize: a typed error, no spin, no other record lost."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import (
    CorruptBatchError,
    DataError,
    KafkaError,
    RecordDeserializationError,
    RecordTooLargeError,
)
from kohort.testing import Cluster, ProducerRecord
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import (
    apoll_quietly,
    poll_error,
    poll_quietly,
    poll_until,
    read,
    values,
)


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    """Default options. They must not cost CPU."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}


class Poisoned(Exception):
    pass


def picky(data: bytes) -> str:
    """Return the text of a value. Raise on ``poison``."""
    if data == b"poison":
        raise Poisoned(data)
    return data.decode()


def read_all(consumer: KafkaConsumer, count: int) -> tuple[list[Any], list[KafkaError]]:
    """Poll until this many records arrived and at least one error was raised."""
    read: list[Any] = []
    errors: list[KafkaError] = []
    while len(read) < count or not errors:
        try:
            for part in consumer.poll(timeout_ms=200).values():
                read += [record.value for record in part]
        except KafkaError as error:
            errors.append(error)
    return sorted(read), errors


@pytest.mark.parametrize("position", [0, 2])
def test_f1_a_raising_deserializer_neither_spins_nor_blocks(
    cluster: Cluster, topic: str, make: MakeConsumer, position: int
) -> None:
    """kafka-python 3.0.12 spins at 100 % forever, whatever timeout_ms says."""
    tp = TopicPartition(topic, 0)
    here = [b"a", b"b", b"c", b"d"]
    here[position] = b"poison"
    cluster.produce(topic, here, partition=0)
    cluster.produce(topic, [b"x", b"y"], partition=1)
    consumer = make(topic, value_deserializer=picky, group_id=None)
    before = [value.decode() for value in here[:position]]
    read, errors = read_all(consumer, position + 2)
    assert read == sorted([*before, "x", "y"])
    error = errors[0]
    assert isinstance(error, RecordDeserializationError)
    assert (error.topic_partition, error.offset, error.raw) == (tp, position, b"poison")
    assert error.next_offset == position + 1
    assert isinstance(error.__cause__, Poisoned)
    assert consumer.position(tp) == position
    repeated = poll_quietly(consumer)
    assert repeated, "it stands until the caller seeks"
    assert all(isinstance(each, RecordDeserializationError) for each in repeated)
    assert error.topic_partition is not None
    consumer.seek(error.topic_partition, error.next_offset)
    rest = [value.decode() for value in here[position + 1 :]]
    assert values(poll_until(consumer, lambda: consumer.position(tp) == 4)) == rest


@pytest.mark.anyio
async def test_f4_deserializer_error_neither_loses_nor_commits_records(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    """aiokafka 0.14 drops the records that getmany() had taken, and commits them."""
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    cluster.produce(topic, [b"poison", b"after"], partition=1)
    read: list[Any] = []
    async with AsyncKafkaConsumer(
        topic, group_id=group, value_deserializer=picky, **options
    ) as consumer:
        errors: list[Exception] = []
        while len(read) < 10 or not errors:
            try:
                for part in (await consumer.poll(timeout_ms=200)).values():
                    read += values(part)
            except RecordDeserializationError as error:
                errors.append(error)
                await consumer.commit()
                assert cluster.committed(group)[good].offset == len(read)
                assert cluster.committed(group)[bad].offset == 0
        assert read == [str(n) for n in range(10)]
        assert {type(e) for e in await apoll_quietly(consumer)} == {RecordDeserializationError}
        consumer.seek(bad, 1)
        assert (await anext(consumer)).value == "after"


def test_a_raising_key_deserializer_is_the_same(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [(b"poison", b"v"), (b"k", b"w")], partition=0)
    consumer = make(topic, key_deserializer=picky)
    error = poll_error(consumer, RecordDeserializationError)
    assert error.raw == b"poison"
    consumer.seek(error.topic_partition, error.next_offset)
    assert [(r.key, r.value) for r in read(consumer, 1)] == [("k", b"w")]


@pytest.mark.parametrize("failing", ["key", "value"])
def test_error_has_the_record_as_received_when_either_part_fails(
    cluster: Cluster, topic: str, make: MakeConsumer, failing: str
) -> None:
    parts: dict[str, bytes | None] = {"key": b"k", "value": None, failing: b"poison"}
    headers = (("source", b"shop"), ("none", None))
    record = ProducerRecord(
        parts["value"], key=parts["key"], headers=headers, timestamp=1_700_000_000_000
    )
    cluster.produce(topic, [record], partition=0)
    consumer = make(topic, **{f"{failing}_deserializer": picky})
    error = poll_error(consumer, RecordDeserializationError)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert each.raw == b"poison"
        assert {"key": each.key, "value": each.value} == parts
        assert each.headers == headers
        assert each.timestamp == 1_700_000_000_000


def test_iteration_raises_at_the_record_and_goes_on_behind_it(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"poison", b"c"], partition=0)
    consumer = make(topic, value_deserializer=picky)
    seen: list[Any] = []
    while len(seen) < 2:
        try:
            seen.append(next(consumer).value)
        except DataError as error:
            assert error.topic_partition is not None and error.next_offset is not None
            consumer.seek(error.topic_partition, error.next_offset)
    assert seen == ["a", "c"]


@pytest.mark.parametrize("how", ["crc", "records", "codec", "magic", "length"])
def test_f1_damaged_batch_spares_others_without_a_busy_loop(
    cluster: Cluster, topic: str, make: MakeConsumer, how: str
) -> None:
    bad = TopicPartition(topic, 0)
    for value in (b"a", b"b", b"c"):  # one batch each
        cluster.produce(topic, [value], partition=0)
    cluster.produce(topic, [b"x", b"y"], partition=1)
    damage = cluster.corrupt(bad, 1, how)
    consumer = make(topic, group_id=None)
    read, errors = read_all(consumer, 3)
    assert read == [b"a", b"x", b"y"]
    error = errors[0]
    assert isinstance(error, CorruptBatchError)
    assert (error.topic_partition, error.offset) == (bad, 1)
    assert error.raw
    assert consumer.position(bad) == 1
    assert all(isinstance(each, CorruptBatchError) for each in poll_quietly(consumer))
    if error.next_offset is not None:
        assert error.next_offset == 2
        consumer.seek(bad, error.next_offset)
        assert values(poll_until(consumer, lambda: consumer.position(bad) == 3)) == [b"c"]
    damage.stop()
    consumer.seek(bad, 1)
    assert values(poll_until(consumer, lambda: consumer.position(bad) == 3)) == [b"b", b"c"]


def test_batch_that_claims_more_than_any_response_holds_raises(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    bad = TopicPartition(topic, 0)
    for value in (b"a", b"b"):
        cluster.produce(topic, [value], partition=0)
    cluster.produce(topic, [b"x"], partition=1)
    cluster.corrupt(bad, 0, "oversize")
    consumer = make(topic, group_id=None)
    read, errors = read_all(consumer, 1)
    assert read == [b"x"]
    assert isinstance(errors[0], RecordTooLargeError)
    assert (errors[0].topic_partition, errors[0].offset) == (bad, 0)
    assert f"{topic}-0" in str(errors[0]) and "fetch_max_bytes" in str(errors[0])
    assert {type(each) for each in poll_quietly(consumer)} == {RecordTooLargeError}
    consumer.seek(bad, 1)
    assert values(poll_until(consumer, lambda: consumer.position(bad) == 2)) == [b"b"]


@pytest.mark.anyio
async def test_a_damaged_batch_on_the_async_face(
    cluster: Cluster, topic: str, options: dict[str, Any]
) -> None:
    tp = TopicPartition(topic, 0)
    for value in (b"a", b"b"):
        cluster.produce(topic, [value], partition=0)
    cluster.corrupt(tp, 0)
    async with AsyncKafkaConsumer(topic, **options) as consumer:
        with pytest.raises(CorruptBatchError) as raised:
            await anext(consumer)
        assert {type(e) for e in await apoll_quietly(consumer)} == {CorruptBatchError}
        assert raised.value.next_offset == 1
        consumer.seek(tp, 1)
        assert (await anext(consumer)).value == b"b"
