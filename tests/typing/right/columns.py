"""Columns have the bytes of keys and values, and iteration gives records."""

from __future__ import annotations

import json
from typing import assert_type

from kohort import ConsumerRecord, KafkaConsumer, RecordColumns, RecordTable

consumer = KafkaConsumer("orders", group_id="billing")
batches = consumer.poll_batches(timeout_ms=100)
for columns in batches:
    assert_type(columns, RecordColumns)
    for value in columns.value:
        assert_type(value, bytes | None)
    assert_type(columns.key[-1], bytes | None)
    assert_type(columns.key[:2][0], bytes | None)
    assert_type(columns.value.view(0), memoryview | None)
    assert_type(columns.offset[0], int)
    assert_type(columns.headers[0], tuple[tuple[str, bytes | None], ...])
    if (first := columns.value[0]) is not None:
        json.loads(first)
    for record in columns:
        assert_type(record, ConsumerRecord[bytes, bytes])
for record in RecordTable(batches):
    assert_type(record.value, bytes | None)
