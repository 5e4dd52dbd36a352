"""Consumers of a cluster in the same event loop, on trio's virtual clock: hours pass instantly."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import anyio
import pytest

from kohort import AsyncKafkaConsumer
from kohort.errors import KafkaError
from kohort.testing import MemoryCluster

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
"""Runs a test by both group protocols."""
EACH_PROTOCOL = pytest.mark.usefixtures("each_protocol")
"""Runs a test by both group protocols, which every ``MemoryConsumer`` uses by default."""
HEARTBEATS = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}
"""Name of the request for a heartbeat by group protocol."""
_CONSUMERS: WeakKeyDictionary[MemoryCluster, int] = WeakKeyDictionary()
"""Number of consumers by cluster."""


class MemoryConsumer(AsyncKafkaConsumer):
    """A consumer whose network is a cluster in the same event loop.

    Its group protocol is the option's default, or that of the fixture ``each_protocol``.

    Consumers of one cluster have different seeds. Equal seeds would give them one member id.
    """

    default_protocol: ClassVar[str | None] = None

    def __init__(
        self, cluster: MemoryCluster, *topics: str, seed: int | None = None, **configs: Any
    ) -> None:
        if self.default_protocol is not None:
            configs = {"group_protocol": self.default_protocol, **configs}
        if seed is None:
            seed = 5 + _CONSUMERS.get(cluster, 0)
            _CONSUMERS[cluster] = _CONSUMERS.get(cluster, 0) + 1
        keywords = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connect": cluster.connect,
            "rng": random.Random(seed),
            "group_id": "g",
            "auto_offset_reset": "earliest",
            **configs,
        }
        super().__init__(*topics, **keywords)


class ClassicConsumer(MemoryConsumer):
    """A consumer of the classic protocol, for tests of its rebalances and of their times."""

    def __init__(self, cluster: MemoryCluster, *topics: str, **configs: Any) -> None:
        super().__init__(cluster, *topics, **{"group_protocol": "classic", **configs})


async def values(consumer: AsyncKafkaConsumer, count: int, timeout: float = 60.0) -> list[bytes]:
    """Poll until this many records arrived. Return their values."""
    found: list[bytes] = []
    with anyio.fail_after(timeout):
        while len(found) < count:
            for part in (await consumer.poll(timeout_ms=1000)).values():
                found += [record.value or b"" for record in part]
    return found


async def poll_for(
    consumer: AsyncKafkaConsumer, holds: Callable[[], object], timeout: float = 60.0
) -> list[KafkaError]:
    """Poll until the predicate holds. Return the errors and drop the records."""
    errors: list[KafkaError] = []
    with anyio.fail_after(timeout):
        while not holds():
            try:
                await consumer.poll(timeout_ms=100)
            except KafkaError as error:
                errors.append(error)
    return errors


@asynccontextmanager
async def polled(
    consumer: AsyncKafkaConsumer, errors: list[KafkaError] | None = None
) -> AsyncIterator[None]:
    """Poll the consumer all the time in a separate task. Append its errors to the list."""

    async def poll() -> None:
        while True:
            try:
                await consumer.poll(timeout_ms=100)
            except KafkaError as error:
                if errors is None:
                    raise
                errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poll)
        yield
        tasks.cancel_scope.cancel()
