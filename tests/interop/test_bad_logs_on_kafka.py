"""Batches that were damaged in the log of Apache Kafka, and the result of ``on_error`` for them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import CorruptBatchError
from tests.interop.brokers import TIMEOUT_S
from tests.support.kafka_server import KafkaServer

pytestmark = [
    pytest.mark.long,  # nodes of Kafka that are started again
    pytest.mark.real_kafka,
    pytest.mark.timeout(180),
]

Damage = Callable[[bytearray, int, int], None]
HOW: dict[str, Damage] = {
    "crc": lambda data, at, size: data.__setitem__(at + size - 3, data[at + size - 3] ^ 1),
    "magic": lambda data, at, size: data.__setitem__(at + 16, 3),
    "last offset": lambda data, at, size: struct.pack_into(">i", data, at + 23, 1000),
    "count": lambda data, at, size: struct.pack_into(">i", data, at + 57, 77),
}
END_KNOWN = {"crc"}
LENGTHS = (2**31 - 1, 10_000)


def written(kafka: KafkaServer, name: str) -> str:
    """Return a topic with six batches of five records."""
    topic = kafka.create_topic(name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 100})
    for batch in range(6):
        for number in range(5):
            producer.produce(topic, b"%d" % (5 * batch + number), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    return topic


def damage(kafka: KafkaServer, topic: str, number: int, how: Damage) -> tuple[int, int]:
    """Damage the batch of that number on the disk.

    Return its first offset and the offset after its last.
    """
    segment = kafka.first_segment(topic)
    data, at, bases = bytearray(segment.read_bytes()), 0, []
    places = []
    while at + 12 <= len(data) and (length := struct.unpack_from(">i", data, at + 8)[0]) > 0:
        bases.append(struct.unpack_from(">q", data, at)[0])
        places.append((at, length + 12))
        at += length + 12
    how(data, *places[number])
    with segment.open("r+b") as file:  # in its place, because the node has the file open
        file.write(data)
    return bases[number], bases[number + 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_why_nothing_comes_behind_a_length_that_lies_is_told(
    kafka: KafkaServer, unique: Callable[[str], str], length: int
) -> None:
    """The broker cannot read past it either, and returns no records."""
    topic = written(kafka, unique("damaged"))
    tp = TopicPartition(topic, 0)
    first, _ = damage(
        kafka, topic, 2, lambda data, at, size: struct.pack_into(">i", data, at + 8, length)
    )
    try:
        with KafkaConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        ) as consumer:
            assert read_all(consumer, first) == ([*range(first)], [])
            words = f"has returned nothing from offset {first} on"
            deadline = time.monotonic() + TIMEOUT_S
            while words not in str(consumer.explain()):
                assert time.monotonic() < deadline, consumer.explain()
                assert consumer.poll(timeout_ms=100) == {}
            consumer.seek(tp, 30)
            deadline = time.monotonic() + TIMEOUT_S
            while "read to the end" not in str(consumer.explain()):
                assert time.monotonic() < deadline, consumer.explain()
                assert consumer.poll(timeout_ms=100) == {}
    finally:
        AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).delete_topics([topic])


@pytest.mark.parametrize("how", HOW)
def test_damaged_batch_raises_or_is_skipped_without_other_losses(
    kafka: KafkaServer, unique: Callable[[str], str], how: str
) -> None:
    topic = written(kafka, unique("damaged"))
    tp = TopicPartition(topic, 0)
    first, behind = damage(kafka, topic, 2, HOW[how])
    readable = [offset for offset in range(30) if not first <= offset < behind]
    try:
        for policy in ("raise", "skip"):
            with KafkaConsumer(
                topic,
                bootstrap_servers=kafka.bootstrap_servers,
                auto_offset_reset="earliest",
                on_error=policy,
            ) as consumer:
                seen, errors = read_all(consumer, len(readable))
                if policy == "raise":
                    assert seen == readable[:first]
                    assert errors[0].offset == consumer.position(tp) == first
                    assert errors[0].next_offset == (behind if how in END_KNOWN else None)
                else:
                    assert (seen, errors) == (readable, [])
                    assert consumer.position(tp) == 30
    finally:
        AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).delete_topics([topic])


def read_all(consumer: KafkaConsumer, count: int) -> tuple[list[int], list[CorruptBatchError]]:
    """Return the offsets until ``count`` were read, and the errors."""
    seen: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(seen) < count:
        assert time.monotonic() < deadline, seen
        try:
            for part in consumer.poll(timeout_ms=500).values():
                seen += [record.offset for record in part]
        except CorruptBatchError as error:
            return seen, [error]
    return seen, []
