"""Methods that wait for a broker are awaited."""

from __future__ import annotations

from typing import assert_type

from kohort import AsyncKafkaConsumer, TopicPartition


async def main(consumer: AsyncKafkaConsumer[bytes, str]) -> None:
    await consumer.start()
    partition = TopicPartition("orders", 0)
    assert_type(await consumer.committed(partition), int | None)
    assert_type(await consumer.position(partition), int)
    await consumer.commit({partition: 7})
    consumer.pause(partition)
    consumer.seek(partition, 3)
