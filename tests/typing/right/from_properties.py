"""Dotted names give the same types as keywords."""

from __future__ import annotations

from typing import assert_type

from kohort import AsyncKafkaConsumer, KafkaConsumer

properties = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
assert_type(KafkaConsumer.from_properties(properties, "orders"), KafkaConsumer[bytes, bytes])
typed = KafkaConsumer.from_properties(properties, "orders", value_deserializer=int)
assert_type(typed, KafkaConsumer[bytes, int])
both = AsyncKafkaConsumer.from_properties(
    properties, "orders", key_deserializer=bytes.decode, value_deserializer=int
)
assert_type(both, AsyncKafkaConsumer[str, int])
