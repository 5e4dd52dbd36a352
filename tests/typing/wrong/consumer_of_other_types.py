"""The types of a consumer are those of its deserializers."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy assignment | pyright reportAssignmentType
consumer: KafkaConsumer[str, int] = KafkaConsumer("orders")
