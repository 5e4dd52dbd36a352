"""KafkaConsumer cannot await a handler."""

from __future__ import annotations

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import process


async def charge(record: ConsumerRecord[bytes, bytes]) -> None: ...


def run(consumer: KafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy arg-type | pyright reportCallIssue,reportArgumentType
    process(consumer, charge)
