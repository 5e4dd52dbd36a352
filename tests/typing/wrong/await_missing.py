"""A method that waits is awaited."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer


async def main(consumer: AsyncKafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy unused-coroutine | pyright reportUnusedCoroutine
    consumer.commit()
