"""A deserializer may be an object with topic and headers."""

from __future__ import annotations

from typing import Any, assert_type

from kohort import KafkaConsumer


class Prices:
    def deserialize(self, topic: str, headers: Any, data: bytes) -> float:
        return float(data)


assert_type(KafkaConsumer("prices", value_deserializer=Prices()), KafkaConsumer[bytes, float])
