"""A function gets the bytes alone."""

from __future__ import annotations

from kohort import KafkaConsumer


def decode(topic: str, data: bytes) -> str:
    return data.decode()


# expect: mypy arg-type | pyright reportArgumentType,reportCallIssue
KafkaConsumer("orders", value_deserializer=decode)
