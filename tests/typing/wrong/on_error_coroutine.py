"""on_error is a plain function."""

from __future__ import annotations

from kohort import KafkaConsumer
from kohort.errors import DataError


async def on_error(error: DataError) -> str:
    return "skip"


# expect: mypy arg-type | pyright reportArgumentType
KafkaConsumer("orders", on_error=on_error)
