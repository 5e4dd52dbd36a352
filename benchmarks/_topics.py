"""Topics that benchmarks/fetch.py reads, written by librdkafka."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Producer

from tests.support.topics import create_topic

PARTITIONS = 4
LINGER_MS = 5
"""Milliseconds for each partition, in which its batch becomes full."""
DISTINCT = 20_000
STEP = 7919
FIRST_MS = 1_700_000_000_000
FLUSH_S = 300.0
WORDS = (
    "the of order customer payment shipped pending berlin paris london eur usd item quantity price "
    "total warehouse status delivered email phone address street number account"
).split()


class Shape(NamedTuple):
    """Records of a topic.

    ``records`` is their number with ``scale`` 1. ``batches`` has the most records in a batch, for
    each producer in turn. ``distinct`` is the number of different keys and values, which then
    repeat.
    """

    name: str
    text: str
    records: int
    value: Callable[[random.Random, int], bytes]
    compression: str = "none"
    batches: tuple[int, ...] = (10_000,)
    distinct: int = DISTINCT


class Filled(NamedTuple):
    """Topic with the number and :func:`checksum` of its records."""

    topic: str
    records: int
    checksum: int


def checksum(total: int) -> int:
    """Return a sum of lengths, offsets and timestamps of all records, in 64 bits."""
    return total % (1 << 64)


def text(size: int) -> Callable[[random.Random, int], bytes]:
    """Return a function that creates values of words."""
    return lambda rng, _: " ".join(rng.choices(WORDS, k=size // 3 + 1)).encode()[:size]


def event(rng: random.Random, number: int) -> bytes:
    """Return 250 bytes of JSON."""
    fields = {
        "id": number,
        "user": f"u{rng.randrange(10**6):06}",
        "event": rng.choice(["view", "click", "cart", "purchase"]),
        "ts": FIRST_MS + number * 13,
        "amount": round(rng.random() * 500, 2),
        "currency": rng.choice(["EUR", "USD", "GBP"]),
        "note": " ".join(rng.choices(WORDS, k=18)),
    }
    return json.dumps(fields).encode()[:250].ljust(250)


PLAIN, LZ4, LARGE, HUGE = "plain", "lz4", "large", "huge"
ZSTD, SNAPPY, TINY = "zstd", "snappy", "tiny"
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(PLAIN, "100 B, plain", 3_000_000, text(100)),
        Shape(LZ4, "250 B of JSON, lz4", 2_000_000, event, "lz4"),
        Shape(LARGE, "1 KB, plain", 500_000, text(1024)),
        Shape(HUGE, "10 KB, plain", 60_000, text(10_240), distinct=2_000),
        Shape(ZSTD, "250 B of JSON, zstd", 1_000_000, event, "zstd"),
        Shape(SNAPPY, "250 B of JSON, snappy", 1_000_000, event, "snappy"),
        Shape(TINY, "100 B, 1 to 10 records a batch", 500_000, text(100), "none", (*range(1, 11),)),
    )
}


def fill(
    bootstrap_servers: str,
    shape: Shape,
    scale: float,
    partitions: int = PARTITIONS,
    name: str | None = None,
    used: int | None = None,
) -> Filled:
    """Create a topic of this shape with ``scale`` times its records.

    Its name is that of the shape by default. The first ``used`` of its partitions get the records,
    by default all. Batches have the same size with any number of partitions.
    """
    used = used or partitions
    records = max(used, int(shape.records * scale))
    topic = create_topic(bootstrap_servers, name or shape.name, partitions)
    rng = random.Random(shape.name)
    distinct = min(records, shape.distinct)
    values = [shape.value(rng, number) for number in range(distinct)]
    keys = [b"k%0*d" % (7 + number % 9, number) for number in range(distinct)]
    failed: list[object] = []
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": LINGER_MS * max(PARTITIONS, used),
                "batch.size": 196_608,
                "batch.num.messages": most,
                "compression.type": shape.compression,
                "queue.buffering.max.messages": 400_000 // len(shape.batches),
                "acks": 1,
                "on_delivery": lambda error, _: failed.append(error) if error else None,
            }
        )
        for most in shape.batches
    ]
    writers = _in_turn(producers, shape.batches)
    ends = [0] * used
    total = 0
    for number in range(records):
        key = keys[number * STEP % distinct]
        value = values[number * STEP % distinct]
        partition = (number >> 5) % used
        stamp = FIRST_MS + number
        producer = next(writers)
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, timestamp=stamp)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
        total += len(key) + len(value) + stamp + ends[partition]
        ends[partition] += 1
    left = sum(producer.flush(FLUSH_S) for producer in producers)
    if left or failed:
        raise RuntimeError(f"{topic}: {left} records were not written, {failed[:1]}")
    return Filled(topic, records, checksum(total))


def _in_turn(producers: list[Producer], batches: tuple[int, ...]) -> Iterator[Producer]:
    """Yield each producer as often as its batch has records, forever."""
    while True:
        for producer, most in zip(producers, batches, strict=True):
            for _ in range(most):
                yield producer
