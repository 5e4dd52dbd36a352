"""Reading from Apache Kafka 2.8 and 3.9, the former with topics in old message formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kohort import OffsetAndMetadata, TopicPartition
from kohort.records import Compression, RecordSet, split_batches
from tests.interop.brokers import QUIET, TIMEOUT_S, Broker
from tests.interop.reading import consumer, read
from tests.interop.test_group_history import check_history
from tests.interop.waiting import wait_until
from tests.support.jars import OLD_VERSIONS, old_jars
from tests.support.kafka_server import KafkaServer
from tests.support.old_kafka import ZooKeeperKafka
from tests.support.plugin import SERVERS

pytestmark = [
    pytest.mark.long,  # needs former versions of Kafka
    pytest.mark.real_kafka,
    pytest.mark.old_kafka,
]

Unique = Callable[[str], str]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
FORMATS = {"0.9.0": 0, "0.10.0": 1, "2.8": 2}
FIRST_MS = 1_700_000_000_000
COUNT = 40


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[dict[str, KafkaServer]]:
    """Servers of each version, started at the same time."""

    def start(version: str) -> KafkaServer:
        kind = ZooKeeperKafka if version.startswith("2.") else KafkaServer
        server = kind(old_jars(version), folders[version], {"offsets.topic.num.partitions": "1"})
        pytestconfig.stash[SERVERS].append(server)  # for their logs
        made.append(server)
        server.start()
        return server

    made: list[KafkaServer] = []
    folders: dict[str, Path] = {v: tmp_path_factory.mktemp(f"kafka-{v}") for v in OLD_VERSIONS}
    try:
        with ThreadPoolExecutor() as starters:
            yield dict(zip(OLD_VERSIONS, starters.map(start, OLD_VERSIONS), strict=True))
    finally:
        for server in made:
            pytestconfig.stash[SERVERS].remove(server)
            server.kill()


def write(broker: Broker, topic: str, codec: str, count: int = COUNT) -> list[bytes]:
    """Write compressible records in few batches and return their values."""
    options = {"compression.type": codec, "linger.ms": 50, **QUIET}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **options})
    values = [b"%s %d %s" % (codec.encode(), number, b"-" * 200) for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k%d" % number, 0, timestamp=FIRST_MS + number)
    assert producer.flush(TIMEOUT_S) == 0
    return values


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_group_reads_every_codec_and_continues_at_its_commit(
    servers: dict[str, KafkaServer], version: str, unique: Unique
) -> None:
    broker = Broker(servers[version].bootstrap_servers)
    topic, group = broker.create_topic(unique("codecs")), unique("group")
    values = [value for codec in CODECS for value in write(broker, topic, codec)]
    stored = split_batches(servers[version].first_segment(topic).read_bytes())
    assert {batch.header.compression for batch in stored} == {*Compression}
    tp = TopicPartition(topic, 0)
    with consumer(broker.bootstrap_servers, topic, group_id=group) as reader:
        records = read(reader, len(values))
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == [*range(len(values))]
        assert [r.timestamp for r in records] == [FIRST_MS + n for n in range(COUNT)] * 5
        reader.commit({tp: OffsetAndMetadata(150)})
    assert broker.committed(group) == {(topic, 0): 150}
    with consumer(broker.bootstrap_servers, topic, group_id=group) as reader:
        assert [record.value for record in read(reader, len(values) - 150)] == values[150:]
        assert reader.end_offsets([tp]) == {tp: len(values)}


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_history_of_a_group_has_the_owners_of_its_members(
    servers: dict[str, KafkaServer], version: str
) -> None:
    check_history(Broker(servers[version].bootstrap_servers), "classic")


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_topics_in_an_old_message_format_are_read(
    servers: dict[str, KafkaServer], version: str, kind: str, unique: Unique
) -> None:
    server = servers["2.8.2"]
    broker = Broker(server.bootstrap_servers)
    config = {"message.format.version": version, "message.timestamp.type": kind}
    topic = broker.create_topic(unique("old"), config=config)
    values = [value for codec in CODECS[:4] for value in write(broker, topic, codec)]
    data = server.first_segment(topic).read_bytes()
    assert magics(data) == {FORMATS[version]}
    with consumer(broker.bootstrap_servers, topic, max_poll_records=7) as reader:
        records = read(reader, len(values))
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == [*range(len(values))]
        assert {record.leader_epoch for record in records} == {-1}
        assert None not in {record.checksum for record in records}
        types = {record.timestamp_type for record in records}
        times = [record.timestamp for record in records]
        if version == "0.9.0":
            assert (types, {*times}) == ({-1}, {-1})
        elif kind == "CreateTime":
            assert (types, times) == ({0}, [FIRST_MS + n for n in range(COUNT)] * 4)
        else:
            assert types == {1} and min(times) > FIRST_MS + COUNT
        reader.seek(TopicPartition(topic, 0), 0)
        tables: list[pa.RecordBatch] = []
        wait_until(
            lambda: sum(table.num_rows for table in tables) >= len(values),
            lambda: tables.append(reader.poll_arrow(timeout_ms=500)),
        )
        assert {*pa.Table.from_batches(tables)["timestampType"].to_pylist()} == types
        reader.seek(TopicPartition(topic, 0), 57)
        assert read(reader, len(values) - 57)[0].offset == 57


def test_a_topic_whose_format_was_raised_twice_is_read_through(
    servers: dict[str, KafkaServer], unique: Unique
) -> None:
    server = servers["2.8.2"]
    broker = Broker(server.bootstrap_servers)
    topic = broker.create_topic(unique("raised"), config={"message.format.version": "0.9.0"})
    values: list[bytes] = []

    def write_one() -> None:
        values.extend(write(broker, topic, "none", 1))

    for version, magic in FORMATS.items():
        set_format(broker, topic, version)
        # The broker applies it a moment later.
        wait_until(partial(is_in, magic, server, topic), write_one)
        values += write(broker, topic, "gzip") + write(broker, topic, "none", 3)
    data = server.first_segment(topic).read_bytes()
    assert magics(data) == {0, 1, 2}
    with consumer(broker.bootstrap_servers, topic) as reader:
        records = read(reader, len(values))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == [*range(len(values))]
    assert records[0].leader_epoch == -1 < records[-1].leader_epoch
    tables: list[pa.RecordBatch] = []
    with consumer(broker.bootstrap_servers, topic) as reader:
        wait_until(
            lambda: sum(table.num_rows for table in tables) >= len(values),
            lambda: tables.append(reader.poll_arrow(timeout_ms=500, max_records=10)),
        )
    whole = pa.Table.from_batches(tables)
    assert whole["value"].to_pylist() == values
    assert whole["offset"].to_pylist() == [*range(len(values))]


def set_format(broker: Broker, topic: str, version: str) -> None:
    """Change the message format in which the topic stores new records."""
    setting = "message.format.version"
    entry = ConfigEntry(setting, version, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    broker.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def is_in(magic: int, server: KafkaServer, topic: str) -> bool:
    """True if a segment of the topic has this format."""
    return magic in magics(server.first_segment(topic).read_bytes())


def magics(data: bytes) -> set[int]:
    """Return the formats of the batches in a segment."""
    found: set[int] = set()
    pos = 0
    while pos + 17 <= len(data):
        found.add(data[pos + 16])
        pos += 12 + int.from_bytes(data[pos + 8 : pos + 12])
    assert RecordSet(data).scan.size == pos == len(data)
    return found
