"""A deserializer takes bytes."""

from __future__ import annotations

from kohort import KafkaConsumer


def decode(data: str) -> int:
    return int(data)


# expect: mypy arg-type | pyright reportArgumentType,reportCallIssue
KafkaConsumer("orders", value_deserializer=decode)
