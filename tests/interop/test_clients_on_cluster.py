"""Unchanged third-party clients on the in-process cluster."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer

from kohort.records import Compression
from kohort.testing import Cluster, GroupSnapshot

TOPIC, PARTITIONS, RECORDS = "orders", 6, 120
Place = tuple[int, int]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: PARTITIONS}) as running:
        yield running


class Member(Protocol):
    """Member that reads until it is stopped. ``places`` has partition and offset of its records."""

    places: list[Place]

    def stop(self) -> None: ...


class Threaded:
    """Member that polls in a separate thread, as an application would."""

    def __init__(self, poll: Callable[[], list[Place]], close: Callable[[], None]) -> None:
        self.places: list[Place] = []
        self._poll = poll
        self._close = close
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.places += self._poll()
            self._close()
        except BaseException as error:
            self._failure = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


def confluent_member(servers: str, group: str) -> Member:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])

    def poll() -> list[Place]:
        messages = consumer.consume(100, 0.1)
        places = []
        for message in messages:
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            places.append((partition, offset))
        return places

    return Threaded(poll, consumer.close)


def kafka_python_member(servers: str, group: str) -> Member:
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )

    def poll() -> list[Place]:
        # It can lose a rebalance that outlasts a shorter timeout.
        fetched = consumer.poll(timeout_ms=2_000)
        return [(record.partition, record.offset) for batch in fetched.values() for record in batch]

    return Threaded(poll, consumer.close)


def aiokafka_member(servers: str, group: str) -> Member:
    loop = asyncio.new_event_loop()

    async def start() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        await consumer.start()
        return consumer

    started: list[Any] = []

    def poll() -> list[Place]:
        if not started:
            started.append(loop.run_until_complete(start()))
        fetched = loop.run_until_complete(started[0].getmany(timeout_ms=100))
        return [(record.partition, record.offset) for batch in fetched.values() for record in batch]

    def close() -> None:
        loop.run_until_complete(started[0].stop())
        loop.close()

    return Threaded(poll, close)


def confluent_produce(servers: str, count: int, **options: object) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, **options})
    for n in range(count):
        producer.produce(TOPIC, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(20) == 0


def kafka_python_produce(servers: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    sent = [producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS) for n in range(count)]
    for future in sent:
        future.get(60)
    producer.close()


def aiokafka_produce(servers: str, count: int) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            sent = [
                await producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS)
                for n in range(count)
            ]
            await asyncio.gather(*sent)

    asyncio.run(run())


CLIENTS = {
    "confluent-kafka": (confluent_produce, confluent_member),
    "aiokafka": (aiokafka_produce, aiokafka_member),
    "kafka-python": (kafka_python_produce, kafka_python_member),
}


def shared(group: GroupSnapshot, members: int) -> bool:
    """True if the group is stable and ``members`` members share the partitions fairly."""
    sizes = [len(member.assignment) for member in group.members]
    return group.is_stable and sizes == [PARTITIONS // members] * members


@pytest.mark.parametrize("client", CLIENTS)
def test_two_members_share_a_group_and_read_each_record_once(cluster: Cluster, client: str) -> None:
    produce, member = CLIENTS[client]
    members = [member(cluster.bootstrap_servers, "g") for _ in range(2)]
    try:
        cluster.wait_until(lambda: shared(cluster.group("g"), 2), timeout=60)
        produce(cluster.bootstrap_servers, RECORDS)
        cluster.wait_until(lambda: sum(len(m.places) for m in members) >= RECORDS, timeout=60)
    finally:
        for one in members:
            one.stop()
    read = [place for one in members for place in one.places]
    assert Counter(read) == Counter(
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS // PARTITIONS)
    )
    owners = [{partition for partition, _ in one.places} for one in members]
    assert [len(owned) for owned in owners] == [3, 3]
    assert cluster.group("g").state == "Empty"
    committed = {place.partition: at.offset for place, at in cluster.committed("g").items()}
    assert committed == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_one_group_of_three_clients(cluster: Cluster) -> None:
    """The clients have one assignor in common, and each reads the others' metadata."""
    members: list[Member] = []
    try:
        for _, member in CLIENTS.values():
            members.append(member(cluster.bootstrap_servers, "g"))
            cluster.wait_until(lambda: shared(cluster.group("g"), len(members)), timeout=60)
        assert cluster.group("g").protocol == "roundrobin"
        confluent_produce(cluster.bootstrap_servers, RECORDS)
        cluster.wait_until(lambda: sum(len(m.places) for m in members) >= RECORDS, timeout=60)
    finally:
        for one in members:
            one.stop()
    assert len({place for one in members for place in one.places}) == RECORDS


def _has_all(member: Member) -> bool:
    return len(member.places) >= RECORDS


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_goes_on_where_its_group_has_committed(cluster: Cluster, client: str) -> None:
    _, member = CLIENTS[client]
    for _ in range(2):
        cluster.produce(TOPIC, ["x"] * RECORDS)
        one = member(cluster.bootstrap_servers, "g")
        cluster.wait_until(partial(_has_all, one), timeout=60)
        one.stop()
        assert len(one.places) == RECORDS


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_a_client_compresses_is_stored_as_it_came(cluster: Cluster, codec: str) -> None:
    confluent_produce(cluster.bootstrap_servers, 60, **{"compression.type": codec})
    assert {record.value for record in cluster.records(TOPIC)} == {b"%d" % n for n in range(60)}


@pytest.mark.parametrize("compression", Compression)
def test_a_client_reads_what_the_cluster_was_given(
    cluster: Cluster, compression: Compression
) -> None:
    cluster.produce(TOPIC, ["x" * 100] * 60, compression=compression)
    one = confluent_member(cluster.bootstrap_servers, "g")
    cluster.wait_until(lambda: len(one.places) >= 60, timeout=60)
    one.stop()


def test_an_idempotent_producer(cluster: Cluster) -> None:
    confluent_produce(cluster.bootstrap_servers, 600, **{"enable.idempotence": True})
    values = [int(record.value or b"") for record in cluster.records(TOPIC)]
    assert sorted(values) == list(range(600))


def test_producer_and_cluster_place_keys_in_the_same_partition(cluster: Cluster) -> None:
    keys = [b"key-%d" % n for n in range(50)]
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    theirs = [producer.send(TOPIC, b"x", key=key) for key in keys]
    placed = [future.get(60).partition for future in theirs]
    producer.close()
    assert placed == [p.partition for p in cluster.produce(TOPIC, [(key, "x") for key in keys])]


def test_offsets_by_time_and_watermarks(cluster: Cluster) -> None:
    cluster.produce(TOPIC, ["x"] * 10, partition=0)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    assert consumer.get_watermark_offsets(ConfluentPartition(TOPIC, 0), timeout=60) == (0, 10)
    (found,) = consumer.offsets_for_times([ConfluentPartition(TOPIC, 0, 0)], timeout=60)
    assert found.offset == 0
    consumer.close()
