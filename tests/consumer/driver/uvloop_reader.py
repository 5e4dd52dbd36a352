"""Program that reads on uvloop in each way: ``python -m tests.consumer.driver.uvloop_reader``.

It prints each way that has read all records. With ``--no-sniffio`` it hides that package, without
which anyio finds the event loop in another way.
"""

from __future__ import annotations

import sys

if "--no-sniffio" in sys.argv:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import uvloop

from kohort import AsyncKafkaConsumer
from kohort.compat.aiokafka import AIOKafkaConsumer
from kohort.testing import Cluster, Security

EARLY, LATE = 20, 3
COUNT = EARLY + LATE


async def polled(consumer: AsyncKafkaConsumer[Any, Any]) -> int:
    return sum(map(len, (await consumer.poll(timeout_ms=500)).values()))


async def polled_batches(consumer: AsyncKafkaConsumer[Any, Any]) -> int:
    return sum(map(len, await consumer.poll_batches(timeout_ms=500)))


async def iterated(consumer: AsyncKafkaConsumer[Any, Any] | AIOKafkaConsumer) -> int:
    await anext(consumer)
    return 1


async def got_many(consumer: AIOKafkaConsumer) -> int:
    return sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))


async def got_one(consumer: AIOKafkaConsumer) -> int:
    await consumer.getone()
    return 1


async def count(cluster: Cluster, read: Callable[[], Awaitable[int]]) -> None:
    """Read the early records, then a few that arrive while the reader waits."""
    found = 0
    while found < EARLY:
        found += await read()
    while found < COUNT:
        reader = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        await asyncio.to_thread(cluster.produce, "t", ["late"])
        found += await reader


async def main(cluster: Cluster, options: dict[str, Any]) -> None:
    for step in (polled, polled_batches, iterated):
        async with AsyncKafkaConsumer("t", group_id=step.__name__, **options) as consumer:
            await count(cluster, partial(step, consumer))
        print(step.__name__)
    if "ssl_cafile" in options:
        context = ssl.create_default_context(cafile=options.pop("ssl_cafile"))
        options["ssl_context"] = context
    for way in (got_many, got_one, iterated):
        other = AIOKafkaConsumer("t", group_id=f"aiokafka {way.__name__}", **options)
        async with other:
            await count(cluster, partial(way, other))
        print("aiokafka", way.__name__)


for protocol in ("PLAINTEXT", "SSL"):
    with Cluster(topics={"t": 1}, security=Security(listeners=[protocol])) as cluster:
        cluster.produce("t", ["a"] * EARLY)
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers_of(protocol),
            "security_protocol": protocol,
            "auto_offset_reset": "earliest",
        }
        if protocol == "SSL":
            options["ssl_cafile"] = cluster.ssl_cafile
        print(protocol)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(cluster, options))
