"""AsyncKafkaConsumer is used by async with."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer


async def main() -> None:
    # expect: mypy attr-defined | pyright reportGeneralTypeIssues
    with AsyncKafkaConsumer("orders") as consumer:
        print(consumer)
