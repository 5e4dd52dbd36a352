"""Records and cores for tests without a cluster, and consumers on the virtual clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord, TopicPartition
from kohort.processing import process
from kohort.processing._core import Core, CoreOptions
from kohort.processing._partition import Lane
from kohort.testing import MemoryCluster
from tests.support.virtual import run_virtual_on

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def record(offset: int, key: Any = None, *, tp: TopicPartition = TP) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(tp.topic, tp.partition, offset=offset, key=key)


def records(
    *offsets: int, key: Any = None, tp: TopicPartition = TP
) -> list[ConsumerRecord[Any, Any]]:
    return [record(offset, key, tp=tp) for offset in offsets]


def make_core(*tps: TopicPartition, **options: Any) -> Core:
    """Return a core that owns these partitions, by default one."""
    core = Core(CoreOptions(**options))
    core.tick(0.0, 0.0)
    for tp in tps or (TP,):
        core.assigned(tp)
    return core


def take_all(core: Core) -> list[Lane]:
    """Take every lane that is ready."""
    found = []
    while (lane := core.take()) is not None:
        found.append(lane)
    return found


def commit(core: Core, tp: TopicPartition = TP, **positions: int) -> tuple[int, str] | None:
    """Commit what has changed for one partition, and return it; None if nothing has."""
    offsets = core.offsets({tp: positions["position"]} if positions else {})
    core.committed(offsets)
    at = offsets.get(tp)
    return None if at is None else (at.offset, at.metadata)


class World:
    """A cluster with the topic "orders", whose consumers are in the group "g"."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self._consumers = 0

    def produce(self, *values: str, key: str | None = None, partition: int = 0) -> None:
        self.cluster.produce("orders", [(key, value) for value in values], partition=partition)

    def consumer(
        self, *topics: str, subscribe: bool = True, **options: Any
    ) -> AsyncKafkaConsumer[bytes, bytes]:
        self._consumers += 1
        return AsyncKafkaConsumer(
            *(topics or ("orders",) if subscribe else ()),
            **{
                "bootstrap_servers": self.cluster.bootstrap_servers,
                "connect": self.cluster.connect,
                "rng": random.Random(self._consumers),
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "wall_clock": self.cluster.wall_clock,
                **options,
            },
        )

    def committed(self, partition: int = 0) -> int | None:
        at = self.cluster.committed("g").get(TopicPartition("orders", partition))
        return None if at is None else at.offset


def in_world(
    backend: str,
    main: Callable[[World], Awaitable[None]],
    *,
    partitions: int = 1,
    **options: Any,
) -> None:
    """Run ``main`` with a cluster, on the virtual clock of an event loop."""

    async def run() -> None:
        async with MemoryCluster(topics={"orders": partitions}, **options) as cluster:
            await main(World(cluster))

    run_virtual_on(backend, run)


@asynccontextmanager
async def processing(
    consumer: AsyncKafkaConsumer[Any, Any], handler: Callable[..., Any], **options: Any
) -> AsyncIterator[None]:
    """Process in another task until the block ends, then wait for the stop."""
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await process(consumer, handler, handle_signals=False, **options)

        tasks.start_soon(run)
        yield
        consumer.wakeup()


async def until(holds: Callable[[], object], timeout: float = 600.0) -> None:
    """Wait on the virtual clock."""
    with anyio.fail_after(timeout):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)
