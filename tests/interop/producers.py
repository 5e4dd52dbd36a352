"""Third-party producers, each with every codec it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import aiokafka
import aiokafka.codec
import kafka
import kafka.codec
from confluent_kafka import Producer

from tests.interop.brokers import QUIET, TIMEOUT_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGER_MS = 100  # long enough for the records to share a batch

Pairs = Sequence[tuple[bytes | None, bytes | None]]
Write = Callable[[str, str, int, str, Pairs], None]
"""Function that writes key-value pairs with a codec, and returns when they are stored."""


def with_confluent(
    bootstrap: str, topic: str, partition: int, codec: str, pairs: Pairs, *, idempotent: str
) -> None:
    """Produce with confluent-kafka. If idempotent, batches have producer ids and
    sequence numbers.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": idempotent,
            "linger.ms": str(LINGER_MS),
            **QUIET,
        }
    )
    for key, value in pairs:
        producer.produce(topic, value, key, partition, headers=[("codec", codec)])
    assert producer.flush(TIMEOUT_S) == 0


def with_aiokafka(bootstrap: str, topic: str, partition: int, codec: str, pairs: Pairs) -> None:
    """Produce with aiokafka."""

    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=LINGER_MS,
        ) as producer:
            headers = [("codec", codec.encode())]
            sent = [
                await producer.send(topic, value, key, partition, headers=headers)
                for key, value in pairs
            ]
            await asyncio.gather(*sent)

    asyncio.run(write())


def with_kafka_python(bootstrap: str, topic: str, partition: int, codec: str, pairs: Pairs) -> None:
    """Produce with kafka-python, idempotent by default."""
    with kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=LINGER_MS,
    ) as producer:
        headers = [("codec", codec.encode())]
        sent = [
            producer.send(topic, value, key, headers=headers, partition=partition)
            for key, value in pairs
        ]
        for one in sent:
            one.get(TIMEOUT_S)


def _has(codecs: object, name: str) -> bool:
    """True if a client's codec module supports this codec here."""
    return name == "none" or bool(getattr(codecs, f"has_{name}")())


WRITERS: dict[str, tuple[Write, tuple[str, ...]]] = {
    "confluent-kafka": (partial(with_confluent, idempotent="false"), CODECS),
    "confluent-kafka idempotent": (partial(with_confluent, idempotent="true"), CODECS),
    "aiokafka": (with_aiokafka, tuple(c for c in CODECS if _has(aiokafka.codec, c))),
    "kafka-python": (with_kafka_python, tuple(c for c in CODECS if _has(kafka.codec, c))),
}
