"""The cluster without sockets takes the place of TCP."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer
from kohort.testing import MemoryCluster


async def main() -> None:
    async with MemoryCluster(topics={"orders": 1}) as cluster:
        async with AsyncKafkaConsumer("orders", connect=cluster.connect) as consumer:
            await anext(consumer)
