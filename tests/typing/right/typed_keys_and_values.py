"""Deserializers give the types of keys and values."""

from __future__ import annotations

from typing import assert_type

from kohort import KafkaConsumer


def decoded(data: bytes) -> str:
    return data.decode()


consumer = KafkaConsumer("orders", key_deserializer=decoded, value_deserializer=int)
assert_type(consumer, KafkaConsumer[str, int])
for records in consumer.poll(timeout_ms=100).values():
    for record in records:
        assert_type(record.key, str | None)
        assert_type(record.value, int | None)
