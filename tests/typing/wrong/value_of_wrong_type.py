"""A deserialized value is no bytes."""

from __future__ import annotations

from kohort import KafkaConsumer

for record in KafkaConsumer("orders", value_deserializer=int):
    if record.value is not None:
        # expect: mypy attr-defined | pyright reportAttributeAccessIssue
        record.value.decode()
