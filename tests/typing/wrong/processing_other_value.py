"""A handler takes records of the consumer's types."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.processing import process


async def charge(record: ConsumerRecord[bytes, int]) -> None: ...


async def run(consumer: AsyncKafkaConsumer[bytes, str]) -> None:
    # expect: mypy arg-type | pyright reportCallIssue,reportArgumentType
    await process(consumer, charge)
