"""Connections that break at any byte: a consumer continues, and loses and repeats nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
import pytest

import kohort
from kohort.config import ClientConfig
from kohort.protocol import Buffer
from kohort.transport import ByteConnection, Connect, TcpConnector
from tests.interop.brokers import Broker
from tests.interop.peers import HEARTBEAT_MS, SESSION_MS
from tests.interop.waiting import DEADLINE_S

PARTITIONS = 6


class Breaking:
    """Connection that is reset after ``left`` bytes, counted over both directions."""

    def __init__(self, inner: ByteConnection, left: int) -> None:
        self._inner = inner
        self._left = left

    async def recv_into(self, view: memoryview, /) -> int:
        if self._left <= 0:
            await self._break()
        count = await self._inner.recv_into(view[: self._left])
        self._left -= count
        return count

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        data = b"".join(buffers)
        await self._inner.send([data[: self._left]])
        self._left -= len(data)
        if self._left < 0:
            await self._break()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _break(self) -> None:
        await self._inner.aclose()
        raise ConnectionResetError("broken on purpose")


class BadNetwork:
    """Connector that sometimes refuses to connect, and breaks the connections that it opens."""

    def __init__(self, connect: Connect, rng: random.Random, mean_bytes: int) -> None:
        self._connect = connect
        self._rng = rng
        self._mean_bytes = mean_bytes
        self.connections = 0

    async def __call__(self, host: str, port: int) -> ByteConnection:
        self.connections += 1
        if self._rng.random() < 0.1:
            raise ConnectionRefusedError("refused on purpose")
        inner = await self._connect(host, port)
        return Breaking(inner, 1 + int(self._rng.expovariate(1 / self._mean_bytes)))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))]
)
async def test_what_is_read_over_a_bad_network_is_all_there(
    broker: Broker, unique: Callable[[str], str], seed: int
) -> None:
    topic, group = broker.create_topic(unique("bad"), PARTITIONS), unique("bad")
    feed = broker.feed(topic, PARTITIONS)
    for _ in range(30):
        feed.write(20)  # a small batch, because a batch is sent whole
    network = BadNetwork(TcpConnector(ClientConfig()), random.Random(seed), 5000)
    consumer = kohort.AsyncKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        heartbeat_interval_ms=HEARTBEAT_MS,
        session_timeout_ms=SESSION_MS,
        fetch_max_bytes=3000,
        max_poll_records=50,
        retry_backoff_ms=10,
        retry_backoff_max_ms=20,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
        connect=network,
    )
    places: list[tuple[int, int]] = []

    async def read_all() -> None:
        with anyio.fail_after(DEADLINE_S):
            while len(places) < len(feed.written):
                for records in (await consumer.poll(timeout_ms=50)).values():
                    places.extend((r.partition, r.offset) for r in records)

    async with consumer:
        await read_all()
        for _ in range(30):
            await anyio.to_thread.run_sync(feed.write, 1)
            await read_all()
    assert sorted(places) == sorted(feed.written)
    assert network.connections > 20
