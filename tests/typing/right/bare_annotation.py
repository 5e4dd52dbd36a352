"""The type arguments may be left out."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer


def drain(consumer: KafkaConsumer) -> int:
    return sum(len(records) for records in consumer.poll().values())


async def adrain(consumer: AsyncKafkaConsumer) -> int:
    return sum(len(records) for records in (await consumer.poll()).values())


def text(record: ConsumerRecord) -> str:
    return f"{record.key}: {record.value}"


drain(KafkaConsumer("orders", value_deserializer=int))
