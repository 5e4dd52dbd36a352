"""A key without a deserializer is bytes."""

from __future__ import annotations

from kohort import KafkaConsumer

for record in KafkaConsumer("orders", value_deserializer=int):
    # expect: mypy assignment | pyright reportAssignmentType
    key: str | None = record.key
