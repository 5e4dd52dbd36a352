"""Read a topic record by record in an event loop, asyncio's or trio's."""

from __future__ import annotations

import json

import anyio

from kohort import AsyncKafkaConsumer
from kohort.testing import Cluster


async def main(bootstrap_servers: str) -> None:
    total = count = 0
    async with AsyncKafkaConsumer(
        "payments",
        bootstrap_servers=bootstrap_servers,
        group_id="ledger",
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
    ) as consumer:
        async for record in consumer:
            assert record.value is not None
            total += record.value["cents"]
            count += 1
            if count == 100:
                break
    print(f"{count} payments, {total / 100:.2f} in all")


if __name__ == "__main__":
    with Cluster(topics={"payments": 4}) as cluster:
        payments = [json.dumps({"cents": 100 + n}).encode() for n in range(100)]
        cluster.produce("payments", payments)
        anyio.run(main, cluster.bootstrap_servers)
