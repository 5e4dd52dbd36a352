"""Brokers that refuse the client, on trio's virtual clock: pauses, reports, and their end."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from kohort.config import ClientConfig
from kohort.errors import (
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailable,
    OAuthTokenUnavailableError,
    SaslAuthenticationFailedError,
    SecurityError,
    TlsVerificationError,
)
from kohort.protocol.messages import HeartbeatRequest
from kohort.transport import ByteConnection, ClusterClient
from tests.transport.peer import FakeCluster, Network, Peer
from tests.transport.running import start_client

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Gate:
    """A connect hook that raises ``errors`` by host, as TLS or a login would."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.errors: dict[str, KafkaError] = {}
        self.attempts: list[tuple[float, str]] = []

    async def connect(self, host: str, port: int) -> ByteConnection:
        self.attempts.append((anyio.current_time(), host))
        await anyio.lowlevel.checkpoint()
        if host in self.errors:
            error = self.errors[host]
            raise type(error)(*error.args)
        return await self.network.connect(host, port)

    def refuse(self, *hosts: str, kind: type[KafkaError] = TlsVerificationError) -> None:
        for host in hosts:
            self.errors[host] = kind(f"{host}:9092: the broker's certificate expired")


@asynccontextmanager
async def gated(
    *hosts: str, brokers: int = 2, **options: Any
) -> AsyncIterator[tuple[ClusterClient, FakeCluster, Gate]]:
    async with anyio.create_task_group() as tasks:
        cluster = FakeCluster(Network(tasks), brokers)
        gate = Gate(cluster.network)
        servers = tuple((host, 9092) for host in hosts)
        config = ClientConfig(bootstrap_servers=servers, **options)
        client = ClusterClient(config, connect=gate.connect, rng=random.Random(1))
        yield client, cluster, gate
        await client.aclose()
        tasks.cancel_scope.cancel()


async def test_refusal_is_tried_again_with_long_pauses() -> None:
    async with gated("b1") as (client, _, gate):
        gate.refuse("b1")
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            with pytest.raises(TlsVerificationError):
                await client.wait_bootstrapped()
            assert anyio.current_time() < 0.1
            await anyio.sleep(200)
            tasks.cancel_scope.cancel()
        times = [at for at, _ in gate.attempts]
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        expected = [1, 2, 4, 8, 16, 30, 30]
        for pause, length in zip(pauses, expected, strict=False):
            assert 0.8 * length <= pause <= 1.2 * length + 0.1
        assert len(times) <= 12


async def test_every_server_is_asked_once_before_the_refusal_is_raised() -> None:
    async with gated("b1", "b2", "b3") as (client, _, gate):
        gate.refuse("b1", "b2", "b3")
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            with pytest.raises(TlsVerificationError) as raised:
                await client.wait_bootstrapped()
            assert sorted(host for _, host in gate.attempts) == ["b1", "b2", "b3"]
            assert all(f"{host}:9092" in str(raised.value) for host in ("b1", "b2", "b3"))
            with anyio.move_on_after(100) as scope:  # the same refusal is not raised again
                await client.wait_bootstrapped(raised.value)
            assert scope.cancelled_caught
            tasks.cancel_scope.cancel()


async def test_error_that_may_pass_is_no_refusal() -> None:
    async with gated("b1", bootstrap_timeout_ms=5000) as (client, _, gate):
        gate.refuse("b1", kind=OAuthTokenUnavailableError)
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            with pytest.raises(OAuthTokenUnavailableError, match="certificate expired"):
                await client.wait_bootstrapped()
            assert anyio.current_time() >= 5
            tasks.cancel_scope.cancel()


async def test_credentials_are_the_cause_when_another_server_is_down() -> None:
    async with gated("b1", "b2", bootstrap_timeout_ms=5000) as (client, _, gate):
        gate.refuse("b1", kind=OAuthTokenUnavailableError)
        gate.refuse("b2", kind=KafkaConnectionError)
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            with pytest.raises(NoBrokersAvailable, match=r"b1:9092: .*b2:9092: ") as raised:
                await client.wait_bootstrapped()
            assert isinstance(raised.value.__cause__, OAuthTokenUnavailableError)
            tasks.cancel_scope.cancel()


async def test_later_refusals_are_reported_once_for_each_cause() -> None:
    """Two brokers have one cause: one report, and another one when the cause returns."""
    async with gated("b1", "b2") as (client, cluster, gate):
        new: list[KafkaError] = []
        over: list[KafkaError] = []
        client.on_refusal(new.append, over.append)
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            await client.wait_bootstrapped()
            for round_number in (1, 2):
                gate.refuse("b1", "b2")
                for broker in cluster.brokers:
                    for peer in broker.peers:
                        peer.reset()
                    broker.peers.clear()
                await anyio.sleep(1)
                for node in (1, 2):
                    # Callers retry, because they get an ordinary connection error.
                    with pytest.raises(KafkaConnectionError, match="certificate expired") as raised:
                        await client.request(HeartbeatRequest(), node=node)
                    assert not isinstance(raised.value, SecurityError)
                    assert isinstance(raised.value.__cause__, SecurityError)
                await anyio.sleep(100)
                assert [type(error) for error in new] == [TlsVerificationError] * round_number
                assert len(client.refusals) == 1
                gate.errors.clear()
                for node in (1, 2):
                    await client.request(HeartbeatRequest(), node=node, timeout_ms=100_000)
                assert [str(error) for error in over] == [str(error) for error in new]
                assert client.refusals == []
            gate.refuse("b1", kind=SaslAuthenticationFailedError)
            gate.refuse("b2")
            for broker in cluster.brokers:
                for peer in broker.peers:
                    peer.reset()
            await anyio.sleep(1)
            for node in (1, 2):
                with pytest.raises(KafkaConnectionError):
                    await client.request(HeartbeatRequest(), node=node)
            assert len(new) == 4
            tasks.cancel_scope.cancel()


async def test_listener_that_hangs_up_is_probed_seldom() -> None:
    async def hang_up(peer: Peer) -> None:
        await peer.shake_hands()
        await peer.receive()

    async with gated("rude", brokers=0) as (client, cluster, gate):
        cluster.network.listen("rude", 9092, hang_up)
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            await anyio.sleep(29)
            assert client.refusals == []
            tasks.cancel_scope.cancel()
        rude = len(gate.attempts)
    async with gated("down", brokers=0) as (client, _, gate):
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            await anyio.sleep(29)
            tasks.cancel_scope.cancel()
        assert rude <= len(gate.attempts) + 2


async def test_failure_is_known_at_the_end_of_its_probe() -> None:
    async def hang_up(peer: Peer) -> None:
        await peer.shake_hands()
        await peer.receive()

    options = {"reconnect_backoff_ms": 100_000, "reconnect_backoff_max_ms": 100_000}
    async with gated("rude", brokers=0, bootstrap_timeout_ms=0, **options) as (client, cluster, _):
        cluster.network.listen("rude", 9092, hang_up)
        async with anyio.create_task_group() as tasks:
            await start_client(tasks, client)
            with pytest.raises(NoBrokersAvailable):
                await client.wait_bootstrapped()
            assert anyio.current_time() < 5  # not the time of a request
            tasks.cancel_scope.cancel()
