"""Columns have the bytes of keys and values."""

from __future__ import annotations

from typing import assert_type

from kohort import KafkaConsumer, RecordColumns

consumer = KafkaConsumer("orders", group_id="billing")
for columns in consumer.poll_batches(timeout_ms=100):
    assert_type(columns, RecordColumns)
    for value in columns.values:
        assert_type(value, memoryview | None)
