"""Records of third-party producers, read by kohort: every client, every codec."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import kohort
from kohort import TopicPartition
from tests.interop.brokers import Broker
from tests.interop.producers import CODECS, WRITERS, Pairs
from tests.interop.reading import consumer, read
from tests.support.kafka_server import KafkaServer

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
FETCH_METRICS = "consumer-fetch-manager-metrics"
RECORDS = 200


def pairs(seed: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return small, large and random records, and null keys and values."""
    rng = random.Random(seed)
    made: list[tuple[bytes | None, bytes | None]] = [(b"key", None), (None, b""), (b"", b"x")]
    while len(made) < RECORDS:
        n = len(made)
        value = rng.randbytes(200) if n % 10 == 0 else b"%d," % n * rng.randrange(1, 400)
        made.append((b"k%d" % n if n % 2 else None, value))
    return made


@pytest.mark.parametrize("client", WRITERS)
def test_every_codec_of_every_client_is_read(
    broker: Broker, unique: Callable[[str], str], client: str
) -> None:
    write, codecs = WRITERS[client]
    topic = broker.create_topic(unique("codecs"), len(codecs))
    written: dict[str, Pairs] = {}
    for partition, codec in enumerate(codecs):
        written[codec] = pairs(partition)
        write(broker.bootstrap_servers, topic, partition, codec, written[codec])
    for partition, codec in enumerate(codecs):
        with consumer(broker.bootstrap_servers) as reader:
            reader.assign([TopicPartition(topic, partition)])
            records = read(reader, RECORDS)
            metrics = reader.metrics()
        assert [(r.key, r.value) for r in records] == written[codec]
        assert [r.offset for r in records] == list(range(RECORDS))
        assert {r.headers for r in records} == {(("codec", codec.encode()),)}
        assert metrics is not None
        size = sum(len(key or b"") + len(value or b"") for key, value in written[codec])
        assert (metrics[FETCH_METRICS]["bytes-consumed-total"] < size / 2) == (codec != "none")


@pytest.mark.parametrize(
    "codec",
    [
        codec if codec == "snappy" else pytest.param(codec, marks=pytest.mark.long)
        for codec in CODECS
    ],
)
@pytest.mark.real_kafka
def test_kafkas_own_console_producer_is_read(
    broker: Broker, kafka: KafkaServer, unique: Callable[[str], str], codec: str
) -> None:
    topic = broker.create_topic(unique("console"))
    lines = [(f"key {n}", f"value {n} " * n) for n in range(RECORDS)]
    done = kafka.tool(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--compression-codec", codec, "--reader-property", "parse.key=true"),
        stdin="".join(f"{key}\t{value}\n" for key, value in lines),
    )
    assert done.returncode == 0, done.stderr
    with kohort.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=bytes.decode,
    ) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert [(r.key, r.value) for r in read(reader, RECORDS)] == lines


@pytest.mark.real_kafka
@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_the_broker_recompresses_is_read(
    apache: Broker, unique: Callable[[str], str], codec: str
) -> None:
    topic = apache.create_topic(unique("recompressed"), 1, {"compression.type": codec})
    write, _ = WRITERS["confluent-kafka"]
    written = pairs(1)
    write(apache.bootstrap_servers, topic, 0, "gzip" if codec != "gzip" else "lz4", written)
    with consumer(apache.bootstrap_servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert [(r.key, r.value) for r in read(reader, RECORDS)] == written
