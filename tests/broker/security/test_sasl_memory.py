"""Logins on the virtual clock: sessions, delays and tokens use the clock of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio
from trio.testing import MockClock

from kohort.broker.network._memory import MemoryConnection
from kohort.broker.security import Phase
from kohort.broker.security._sasl import _TABLE
from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from kohort.testing import MemoryCluster, Security
from tests.broker.security.logins import bearer, plain

HOUR = 3600.0
PASSWORD = {"alice": "alice-secret"}


class Client:
    """A connection to the first broker of a cluster in memory."""

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    @classmethod
    async def to(cls, cluster: MemoryCluster) -> Client:
        host, port = cluster.bootstrap_servers.split(":")
        return cls(await cluster.connect(host, int(port)))

    async def ask(self, request: Request[Response], version: int) -> Response:
        """Return the response. Raise EOFError if the broker ends the connection."""
        await self._connection.send(encode_request(request, version, 1, "c"))
        size = int.from_bytes(await self._exactly(4), "big")
        _, response = decode_response(request.response, version, await self._exactly(size))
        return response

    async def login(self, mechanism: str, token: bytes) -> tuple[int, int]:
        """Return error code and lifetime."""
        await self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        return answer.error_code, answer.session_lifetime_ms  # type: ignore[attr-defined]

    async def is_open(self) -> bool:
        try:
            await self.ask(MetadataRequest(topics=[]), 9)
        except EOFError:
            return False
        return True

    async def _exactly(self, size: int) -> bytes:
        data, have = memoryview(bytearray(size)), 0
        while have < size:
            count = await self._connection.recv_into(data[have:])
            if not count:
                raise EOFError
            have += count
        return bytes(data)


def run(security: Security, function: Callable[[MemoryCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with MemoryCluster(security=security) as cluster:
            await function(cluster)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_session_ends_by_the_clock_of_the_cluster() -> None:
    async def sessions(cluster: MemoryCluster) -> None:
        ended, renewed = await Client.to(cluster), await Client.to(cluster)
        for client in (ended, renewed):
            assert await client.login("PLAIN", plain("alice", "alice-secret")) == (0, 3_600_000)
        await anyio.sleep(HOUR - 1)
        assert await ended.is_open()
        await anyio.sleep(2)
        assert not await ended.is_open()
        assert await renewed.login("PLAIN", plain("alice", "alice-secret")) == (0, 3_600_000)
        await anyio.sleep(HOUR - 1)
        assert await renewed.is_open()

    run(Security(["SASL_SSL"], PASSWORD, session_lifetime_ms=3_600_000), sessions)


def test_failed_login_waits_by_the_clock_of_the_cluster() -> None:
    async def failing(cluster: MemoryCluster) -> None:
        client = await Client.to(cluster)
        started = anyio.current_time()
        assert await client.login("PLAIN", plain("alice", "no")) == (58, 0)
        assert anyio.current_time() - started == pytest.approx(HOUR)

    delay_ms = int(HOUR * 1000)
    run(Security(["SASL_SSL"], PASSWORD, failed_authentication_delay_ms=delay_ms), failing)


def test_token_expires_by_the_clock_of_the_cluster() -> None:
    async def expiring(cluster: MemoryCluster) -> None:
        client = await Client.to(cluster)
        assert await client.login("OAUTHBEARER", bearer("t")) == (0, 7_200_000)
        await anyio.sleep(2 * HOUR + 1)
        assert not await client.is_open()

    def check(token: str, now: float) -> tuple[str, float]:
        return "alice", now + 2 * HOUR

    run(Security(["SASL_PLAINTEXT"], tokens=check), expiring)


def test_nth_login_fails() -> None:
    async def failing(cluster: MemoryCluster) -> None:
        with cluster.fail_login("Go away", after=2) as fault:
            codes = []
            for _ in range(4):
                client = await Client.to(cluster)
                codes.append((await client.login("PLAIN", plain("alice", "alice-secret")))[0])
        assert codes == [0, 0, 58, 0]
        assert fault.hits == 1

    run(Security(["SASL_PLAINTEXT"], PASSWORD), failing)


def test_every_phase_of_a_login_is_in_the_table() -> None:
    assert set(_TABLE) == set(Phase)
    assert {len(steps) for steps in _TABLE.values()} == {4}
