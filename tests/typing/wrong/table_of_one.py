"""RecordTable takes several columns."""

from __future__ import annotations

from kohort import KafkaConsumer, RecordTable

for columns in KafkaConsumer("orders").poll_batches():
    # expect: mypy arg-type | pyright reportArgumentType
    RecordTable(columns)
