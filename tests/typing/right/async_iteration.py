"""Asynchronous iteration returns typed records."""

from __future__ import annotations

import asyncio
from typing import assert_type

from kohort import AsyncKafkaConsumer, ConsumerRecord


async def main() -> None:
    async with AsyncKafkaConsumer("orders", value_deserializer=int) as consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes, int])
        assert_type(await anext(consumer), ConsumerRecord[bytes, int])


asyncio.run(main())
