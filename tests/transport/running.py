"""A cluster client that runs with brokers in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from kohort.config import ClientConfig
from kohort.transport import ClusterClient, OneShot
from tests.transport.peer import FakeCluster, Network


async def start_client(tasks: TaskGroup, client: ClusterClient) -> None:
    """Run a client, and wait until it may send requests."""
    started = OneShot()
    tasks.start_soon(client.run, started.set)
    await started.wait()


@asynccontextmanager
async def running(
    *, brokers: int = 1, bootstrap: tuple[tuple[str, int], ...] = (("b1", 9092),), **options: Any
) -> AsyncIterator[tuple[ClusterClient, FakeCluster]]:
    """Run a client and its cluster. Check that no connection is open after its close."""
    async with anyio.create_task_group() as tasks:
        cluster = FakeCluster(Network(tasks), brokers)
        config = ClientConfig(bootstrap_servers=bootstrap, **options)
        client = ClusterClient(config, connect=cluster.network.connect, rng=random.Random(1))
        await start_client(tasks, client)
        yield client, cluster
        await client.aclose()
        assert cluster.network.open_ends == 0
        tasks.cancel_scope.cancel()
