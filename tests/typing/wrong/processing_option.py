"""A batch has the order of its partition."""

from __future__ import annotations

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import Batch, process


def insert(records: list[ConsumerRecord[bytes, bytes]]) -> None: ...


def run(consumer: KafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy call-overload | pyright reportCallIssue,reportArgumentType
    process(consumer, insert, batch=Batch(10), order="key")
