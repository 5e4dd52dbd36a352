"""AsyncKafkaConsumer needs a coroutine function as handler."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.processing import process


def charge(record: ConsumerRecord[bytes, bytes]) -> None: ...


async def run(consumer: AsyncKafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy arg-type | pyright reportCallIssue,reportArgumentType
    await process(consumer, charge)
