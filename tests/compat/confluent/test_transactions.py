"""confluent-kafka's transactional producer takes offsets and membership of a kohort consumer."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.compat import confluent
from tests.interop.brokers import TIMEOUT_S, Broker


def begin_transaction(broker: Broker, transactional_id: str) -> confluent_kafka.Producer:
    """Return a producer inside a transaction."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "log_level": "2",
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    return producer


def joined(broker: Broker, topic: str, group: str, **options: Any) -> KafkaConsumer:
    """Return a member of the group that has its partitions."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        **options,
    )
    while not consumer.assignment():
        consumer.poll(100, max_records=1)
    return consumer


@pytest.mark.parametrize("instance", [None, "instance-1"])
def test_transaction_commits_offsets_of_a_member(
    broker: Broker, topic: str, group: str, instance: str | None
) -> None:
    broker.write(topic, b"one", partition=0)
    broker.write(topic, b"two", partition=1)
    with joined(broker, topic, group, group_instance_id=instance) as consumer:
        while sum(consumer.positions().values()) < 2:
            consumer.poll(100)
        producer = begin_transaction(broker, f"copy-{group}")
        producer.produce(topic, b"copy", partition=0)
        producer.send_offsets_to_transaction(
            confluent.offsets(consumer.positions()), confluent.group_metadata(consumer)
        )
        producer.commit_transaction(TIMEOUT_S)
        for partition in (0, 1):
            assert consumer.committed(TopicPartition(topic, partition)) == 1


def test_transaction_of_a_replaced_member_is_refused(
    broker: Broker, topic: str, group: str
) -> None:
    with joined(broker, topic, group) as first:
        stale = confluent.group_metadata(first)
        positions = {TopicPartition(topic, 0): 5}
        generation = first.group_metadata().generation_id
        first.enforce_rebalance()
        while first.group_metadata().generation_id == generation:
            first.poll(100)
        producer = begin_transaction(broker, f"zombie-{group}")
        producer.produce(topic, b"twice", partition=0)
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.send_offsets_to_transaction(confluent.offsets(positions), stale)
        error = raised.value.args[0]
        assert error.code() == confluent_kafka.KafkaError.ILLEGAL_GENERATION
        assert error.txn_requires_abort()
        producer.abort_transaction(TIMEOUT_S)
        assert first.committed(TopicPartition(topic, 0)) is None


def test_group_metadata_raises_without_a_group(broker: Broker) -> None:
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        with pytest.raises(ValueError, match="the consumer has no group"):
            confluent.group_metadata(consumer)
