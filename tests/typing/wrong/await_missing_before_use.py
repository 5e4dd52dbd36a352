"""A coroutine is no record."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer


async def main(consumer: AsyncKafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy attr-defined | pyright reportAttributeAccessIssue
    print(consumer.poll().values())
