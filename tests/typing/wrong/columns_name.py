"""Columns have the names of Arrow's columns."""

from __future__ import annotations

from kohort import KafkaConsumer

for columns in KafkaConsumer("orders").poll_batches():
    # expect: mypy attr-defined | pyright reportAttributeAccessIssue
    print(columns.values)
