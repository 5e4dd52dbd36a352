"""A store has one offset for a partition."""

from __future__ import annotations

from typing import Any

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import SqlOffsets, process


def insert(record: ConsumerRecord[bytes, bytes], cursor: Any) -> None: ...


def run(consumer: KafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy call-overload | pyright reportCallIssue
    process(consumer, insert, offsets=SqlOffsets(print), order="key")
