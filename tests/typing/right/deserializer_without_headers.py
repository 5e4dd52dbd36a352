"""A deserializer may be an object with the topic alone."""

from __future__ import annotations

from typing import assert_type

from kohort import AsyncKafkaConsumer


class Names:
    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode()


consumer = AsyncKafkaConsumer("names", key_deserializer=Names())
assert_type(consumer, AsyncKafkaConsumer[str, bytes])
