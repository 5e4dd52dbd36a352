"""Third-party transactional producers on the in-process cluster, read by both kinds
of consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaProducer
from kafka import OffsetAndMetadata as PythonOffset
from kafka import TopicPartition as PythonPartition

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.testing import Cluster
from tests.interop.readers import READERS
from tests.interop.waiting import wait_until

TOPIC, ROUNDS, EACH = "orders", 12, 5
COMMITTED = [b"%d-%d" % (n, i) for n in range(ROUNDS) for i in range(EACH) if n % 3 != 2]
"""Values of committed transactions. Every third transaction is aborted."""


@pytest.fixture(params=[2, 0], ids=["version-2", "version-0"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: 2}, transaction_version=request.param) as running:
        yield running


def confluent_produce(cluster: Cluster) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "c", "log_level": 0}
    )
    producer.init_transactions(20)
    for n in range(ROUNDS):
        producer.begin_transaction()
        for i in range(EACH):
            producer.produce(TOPIC, b"%d-%d" % (n, i), partition=i % 2)
        if n % 3 == 2:
            producer.flush(20)
            producer.abort_transaction(20)
        else:
            producer.send_offsets_to_transaction(
                [ConfluentPartition("input", 0, n)],
                Consumer(
                    {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "inputs"}
                ).consumer_group_metadata(),
                20,
            )
            producer.commit_transaction(20)


def aiokafka_produce(cluster: Cluster) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="a"
        ) as producer:
            for n in range(ROUNDS):
                await producer.begin_transaction()
                for i in range(EACH):
                    await producer.send_and_wait(TOPIC, b"%d-%d" % (n, i), partition=i % 2)
                if n % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.send_offsets_to_transaction(
                        {AioPartition("input", 0): n}, "inputs"
                    )
                    await producer.commit_transaction()

    asyncio.run(run())


def kohort_read(cluster: Cluster) -> list[bytes | None]:
    read: list[bytes | None] = []
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        partitions = [TopicPartition(TOPIC, index) for index in range(2)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any((consumer.position(p) or 0) < end for p, end in ends.items()):
            for records in consumer.poll(timeout_ms=1000).values():
                read += [record.value for record in records]
    return read


def kafka_python_produce(cluster: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="k")
    producer.init_transactions()
    for n in range(ROUNDS):
        producer.begin_transaction()
        for i in range(EACH):
            producer.send(TOPIC, b"%d-%d" % (n, i), partition=i % 2)
        if n % 3 == 2:
            producer.flush(20)
            producer.abort_transaction()
        else:
            offsets = {PythonPartition("input", 0): PythonOffset(n, "", -1)}
            producer.send_offsets_to_transaction(offsets, "inputs")
            producer.commit_transaction()
    producer.close()


PRODUCERS = {
    "confluent-kafka": confluent_produce,
    "aiokafka": aiokafka_produce,
    "kafka-python": kafka_python_produce,
}


def read_as(client: str, cluster: Cluster, partition: int) -> list[bytes]:
    """Return what a reader of committed records reads from the partition, up to "end"."""
    values: list[bytes] = []
    with closing(READERS[client](cluster.bootstrap_servers, "readers", "read_committed")) as reader:
        reader.seek_to_time(TOPIC, 0, partition)
        wait_until(lambda: b"end" in values, lambda: values.extend(reader.read()))
    return values[:-1]


@pytest.mark.parametrize("client", PRODUCERS)
def test_exactly_what_is_committed_is_read(cluster: Cluster, client: str) -> None:
    cluster.create_topic("input")
    PRODUCERS[client](cluster)
    assert len(cluster.records(TOPIC)) == ROUNDS * EACH
    assert sorted(kohort_read(cluster), key=str) == sorted(COMMITTED, key=str)
    for partition in range(2):
        cluster.produce(TOPIC, "end", partition=partition)
    read = [value for partition in range(2) for value in read_as(client, cluster, partition)]
    assert sorted(read) == sorted(COMMITTED)
    assert cluster.committed("inputs") == {
        TopicPartition("input", 0): OffsetAndMetadata(ROUNDS - 2, "", -1)
    }


def test_a_second_producer_fences_the_first_of_that_name(cluster: Cluster) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}
    first = Producer({**options, "log_level": 0})
    first.init_transactions(20)
    first.begin_transaction()
    first.produce(TOPIC, b"lost", partition=0)
    first.flush(20)
    second = Producer({**options, "log_level": 0})
    second.init_transactions(20)
    second.begin_transaction()
    second.produce(TOPIC, b"kept", partition=0)
    second.commit_transaction(20)
    with pytest.raises(Exception, match=r"[Ff]enced"):
        first.commit_transaction(20)
    assert kohort_read(cluster) == [b"kept"]
