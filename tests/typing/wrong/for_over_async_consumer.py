"""AsyncKafkaConsumer has no plain iteration."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer


async def main(consumer: AsyncKafkaConsumer[bytes, bytes]) -> None:
    # expect: mypy attr-defined | pyright reportGeneralTypeIssues
    for record in consumer:
        print(record)
