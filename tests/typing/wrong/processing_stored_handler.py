"""A handler with a store gets a cursor."""

from __future__ import annotations

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import SqlOffsets, process


def insert(record: ConsumerRecord[bytes, bytes]) -> None: ...


def run(consumer: KafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy arg-type | pyright reportCallIssue,reportArgumentType
    process(consumer, insert, offsets=SqlOffsets(print))
