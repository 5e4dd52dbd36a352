"""Methods of KafkaConsumer are not awaited."""

from __future__ import annotations

from kohort import KafkaConsumer


async def main(consumer: KafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy misc | pyright reportGeneralTypeIssues
    await consumer.poll()
