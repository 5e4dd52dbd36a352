"""Brokers that begin to send invalid responses, stop responding, or stop running."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer
from kohort.config import ClientConfig
from kohort.errors import KafkaTimeoutError, ProtocolError
from kohort.protocol import Buffer
from kohort.testing import Cluster
from kohort.transport import ByteConnection, TcpConnector
from tests.consumer import servers
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import apoll_quietly, aread, poll_quietly, read, values

Spoil = Callable[[bytes], bytes]

NONSENSE: dict[str, Spoil] = {
    "oversized": lambda data: servers.OVERSIZED[:4] + data[4:],
    "negative": lambda data: servers.NEGATIVE[:4] + data[4:],
    "garbage": lambda data: data[:4] + bytes(b ^ 0x5A for b in data[4:]),
    "tls alert": lambda data: servers.TLS_ALERT.ljust(len(data), b"\0")[: len(data)],
    "another answer": lambda data: data[:4] + bytes(len(data) - 4),
}


class Network:
    """Connections whose responses a test can replace by invalid bytes."""

    def __init__(self) -> None:
        self._connect = TcpConnector(ClientConfig())
        self.spoil: Spoil | None = None

    async def connect(self, host: str, port: int) -> ByteConnection:
        return Spoiled(self, await self._connect(host, port))


class Spoiled:
    """A connection whose first response, that to ApiVersions, stays as it is.

    A request may be sent before that response is received.
    """

    def __init__(self, network: Network, link: ByteConnection) -> None:
        self._network = network
        self._link = link
        self._head = b""
        """The length of the first response, as far as it is received."""
        self._received = 0

    async def recv_into(self, view: memoryview) -> int:
        count = await self._link.recv_into(view)
        data = bytes(view[:count])
        self._head += data[: 4 - len(self._head)]
        end = 4 + int.from_bytes(self._head.ljust(4, b"\0"), "big")
        kept = max(0, min(count, end - self._received))
        self._received += count
        if self._network.spoil is not None and kept < count:
            view[kept:count] = self._network.spoil(data[kept:])
        return count

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._link.send(buffers)

    async def aclose(self) -> None:
        await self._link.aclose()


@pytest.mark.cases(3)  # each waits for timeouts
@pytest.mark.anyio
@pytest.mark.parametrize("kind", NONSENSE)
async def test_nonsense_raises_typed_errors_without_a_busy_loop(
    cluster: Cluster, topic: str, kind: str
) -> None:
    cluster.produce(topic, [b"before"], partition=0)
    network = Network()
    consumer = AsyncKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        connect=network.connect,
    )
    async with consumer:
        assert values(await aread(consumer, 1)) == [b"before"]
        network.spoil = NONSENSE[kind]
        cluster.produce(topic, [b"meanwhile"], partition=0)
        with pytest.raises(ProtocolError) as raised:
            await anext(consumer)
        text = str(raised.value)
        assert cluster.bootstrap_servers in text and "check that the listener" in text
        assert not re.search(r"unpack|buffer of|index out|range|codec", text), text
        errors = await apoll_quietly(consumer)
        assert all(isinstance(error, ProtocolError) for error in errors)
        network.spoil = None
        rest: list[Any] = []
        while not rest:
            try:
                rest = values(await aread(consumer, 1))
            except ProtocolError:
                pass  # the error of the loop above, again
        assert rest == [b"meanwhile"]


def test_a_silent_cluster_is_waited_for(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"before"])
    consumer = make(topic, group_id=group)
    assert values(read(consumer, 1)) == [b"before"]
    with cluster.network_partition():
        cluster.produce(topic, [b"meanwhile"])
        assert poll_quietly(consumer) == []
        with pytest.raises(KafkaTimeoutError):
            consumer.end_offsets(consumer.assignment(), timeout_ms=50)
    assert values(read(consumer, 1)) == [b"meanwhile"]


@pytest.mark.anyio
async def test_a_dead_broker_is_waited_for(topic: str, anyio_backend: str) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", [b"before"])
        async with AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="shop",
            auto_offset_reset="earliest",
        ) as consumer:
            assert values(await aread(consumer, 1)) == [b"before"]
            cluster.kill_broker(1)
            assert await apoll_quietly(consumer) == []
            cluster.start_broker(1)
            cluster.produce("orders", [b"after"])
            with anyio.fail_after(60):
                assert (await anext(consumer)).value == b"after"
