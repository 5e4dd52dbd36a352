"""Consumers on uvloop, with and without the package sniffio, and in a web server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer
from kohort.testing import Cluster

WAYS = ["polled", "polled_batches", "iterated"]
WAYS += ["aiokafka got_many", "aiokafka got_one", "aiokafka iterated"]
LIMIT_S = 120


@pytest.mark.timeout(LIMIT_S + 10)
@pytest.mark.parametrize("arguments", [[], ["--no-sniffio"]])
def test_each_way_reads_on_uvloop(arguments: list[str]) -> None:
    pytest.importorskip("uvloop")
    if not arguments:
        pytest.importorskip("sniffio")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.consumer.driver.uvloop_reader", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.stdout.splitlines() == ["PLAINTEXT", *WAYS, "SSL", *WAYS], ended.stderr


def test_consumer_reads_in_the_lifespan_of_uvicorn(cluster: Cluster, topic: str) -> None:
    pytest.importorskip("uvloop")
    uvicorn = pytest.importorskip("uvicorn")
    cluster.produce(topic, [b"a"] * 5)
    seen: list[Any] = []

    async def read() -> None:
        seen.append(type(asyncio.get_running_loop()).__module__)
        try:
            async with AsyncKafkaConsumer(
                topic,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
            ) as consumer:
                while len(seen) < 6:
                    seen.append((await anext(consumer)).value)
        finally:
            server.should_exit = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        reader = asyncio.create_task(read())
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        await reader
        await send({"type": "lifespan.shutdown.complete"})

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, lifespan="on", loop="uvloop", log_level="error")
    )
    server.run()
    assert seen == ["uvloop", *[b"a"] * 5]
