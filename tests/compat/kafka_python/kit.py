"""Helpers of the tests for kafka-python's consumer."""

from __future__ import annotations

from typing import Any


def poll_until(consumer: Any, count: int) -> list[Any]:
    """Return this many records of polls."""
    records: list[Any] = []
    while len(records) < count:
        for batch in consumer.poll(timeout_ms=100).values():
            records += batch
    return records


def poll_until_assigned(consumer: Any) -> None:
    """Poll until the group has assigned partitions."""
    while not consumer.assignment():
        consumer.poll(timeout_ms=100, max_records=1)
