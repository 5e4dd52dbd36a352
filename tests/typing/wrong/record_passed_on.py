"""A function of text gets no numbers."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRecord


def handle(record: ConsumerRecord[bytes, str]) -> None: ...


async def main(consumer: AsyncKafkaConsumer[bytes, int]) -> None:
    # expect: mypy arg-type | pyright reportArgumentType
    handle(await anext(consumer))
