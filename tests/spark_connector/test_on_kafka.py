"""The source on Apache Kafka: ranges with gaps, and offsets that Kafka's tools show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.spark_connector.starting import started
from tests.support.kafka_server import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def topic(kafka: KafkaServer, unique: Callable[[str], str]) -> str:
    """A topic of three partitions with 90 records in transactions, a third of them aborted."""
    name = unique("spark")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(60)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("spark")}
    )
    producer.init_transactions(30)
    for round_ in range(3):
        producer.begin_transaction()
        for number in range(30):
            producer.produce(name, f"{round_}-{number}", f"k{number}", partition=number % 3)
        if round_ == 1:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return name


def test_batch_and_stream_read_committed_records_and_commit(
    spark: SparkSession,
    kafka: KafkaServer,
    topic: str,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    group = unique("spark")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "kafka.group.id": group,
        "startingOffsets": "earliest",
        "subscribe": topic,
    }
    expected = sorted(f"{round_}-{number}" for round_ in (0, 2) for number in range(30))
    batch = spark.read.format("kohort").options(**options).schema("value string").load()
    assert sorted(row["value"] for row in batch.collect()) == expected

    table = group.replace("-", "_")
    query = started(
        spark.readStream.format("kohort")
        .options(**options, maxOffsetsPerTrigger="40")
        .schema("value string")
        .load()
        .writeStream.format("memory")
        .queryName(table)
        .trigger(availableNow=True),
        tmp_path,
    )
    assert query.awaitTermination(300)
    assert sorted(row["value"] for row in spark.table(table).collect()) == expected
    assert lag(kafka, group, topic) == [0, 0, 0]


def lag(kafka: KafkaServer, group: str, topic: str) -> list[int]:
    """Return the lag of the group by partition, from Kafka."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    committed = {tp.partition: tp.offset for tp in asked.result(60).topic_partitions}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks-only"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1]
            - committed[partition]
            for partition in range(3)
        ]
    finally:
        consumer.close()
