"""``start()`` without a reachable broker ends as that of aiokafka."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiokafka.consumer.consumer
import pytest

import kohort.compat.aiokafka
from kohort.testing import Cluster
from tests.compat.aiokafka.kit import within
from tests.support.net import free_ports

pytestmark = pytest.mark.anyio

PEER = aiokafka.consumer.consumer.AIOKafkaConsumer
Make = Callable[..., Any]


@pytest.fixture(params=["aiokafka", "kohort.compat.aiokafka"])
async def make(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Make]:
    """Return a function that makes consumers of one of the two classes."""
    made: list[Any] = []

    def make_consumer(*servers: str) -> Any:
        of_peer = request.param == "aiokafka"
        consumer_class = PEER if of_peer else kohort.compat.aiokafka.AIOKafkaConsumer
        made.append(consumer_class(bootstrap_servers=list(servers), retry_backoff_ms=20))
        return made[-1]

    yield make_consumer
    for consumer in made:
        await consumer.stop()


def refusing(count: int) -> list[str]:
    """Return addresses at which nothing listens."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of addresses to which this process begins to connect."""
    addresses: list[str] = []

    def noting(connect: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: socket.socket, address: tuple[str, int]) -> Any:
            addresses.append(f"{address[0]}:{address[1]}")
            return connect(self, address)

        return noted

    for name in ("connect", "connect_ex"):  # aiokafka calls one, and kohort the other
        monkeypatch.setattr(socket.socket, name, noting(getattr(socket.socket, name)))
    return addresses


async def test_start_fails_after_one_try_of_each_server(make: Make, tried: list[str]) -> None:
    servers = refusing(5)
    consumer = make(*servers)
    for _ in range(2):
        tried.clear()
        with pytest.raises(aiokafka.errors.KafkaConnectionError, match="Unable to bootstrap from"):
            await within(consumer.start())
        assert sorted(tried) == sorted(servers)


async def test_start_fails_after_servers_closed_the_connection(make: Make) -> None:
    accepted: list[str] = []

    def close(name: str) -> Callable[..., None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(name)
            writer.close()

        return accept

    servers = [await asyncio.start_server(close(name), "127.0.0.1", 0) for name in ("a", "b")]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    with pytest.raises(aiokafka.errors.KafkaConnectionError, match="Unable to bootstrap from"):
        await within(make(*addresses).start())
    assert set(accepted) == {"a", "b"}
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_start_finds_the_server_that_is_up(make: Make, cluster: Cluster) -> None:
    consumer = make(*refusing(2), cluster.bootstrap_servers)
    await within(consumer.start())
    assert isinstance(await within(consumer.topics()), set)
