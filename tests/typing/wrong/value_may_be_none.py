"""A tombstone has no value."""

from __future__ import annotations

from kohort import KafkaConsumer

for record in KafkaConsumer("orders", value_deserializer=int):
    # expect: mypy operator | pyright reportOptionalOperand
    print(record.value + 1)
