"""Network of a member: connections in memory that can break at any byte, freeze or be cut."""

from __future__ import annotations

import random
import ssl
from collections.abc import Sequence

import anyio

from kohort.broker.network._memory import MemoryConnection
from kohort.protocol import Buffer
from kohort.security import TlsAttempt, explain_tls
from kohort.testing import MemoryCluster

PIECE = 4 << 10
"""Most bytes that come over a slow line at a time."""


class MemberNetwork:
    """All connections of one life of a member."""

    def __init__(self, cluster: MemoryCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._open: list[_Connection] = []
        self._thawed = anyio.Event()
        self._thawed.set()
        self.cut = False
        """Flag for an ended process: no bytes pass, and both sides see the end immediately."""
        self.dead = False
        """Flag for an ended machine: no bytes pass any longer, and no side sees an end."""
        self.latency = 0.0
        self.round_trip = 0.0
        """Seconds that each request takes on its way, so that its response takes none."""
        self.rate: int | None = None
        """Bytes per second that each connection delivers. None for any number at once."""
        self.resets_handshakes = False
        """New connections are reset before their TLS handshake is complete."""

    async def connect(self, host: str, port: int) -> _Connection:
        """Open a connection. It raises what a failed TLS handshake would."""
        await self.pass_through()
        if self.resets_handshakes:
            raise ConnectionResetError("reset in the TLS handshake")
        try:
            inner = await self._cluster.connect(host, port)
        except ssl.SSLError as error:
            raise explain_tls(error, TlsAttempt(f"{host}:{port}", host)) from error
        connection = _Connection(self, inner)
        self._open.append(connection)
        return connection

    async def pass_through(self) -> None:
        """Return when bytes may pass. Raise ConnectionResetError if they never will."""
        await self._thawed.wait()
        if self.cut:
            raise ConnectionResetError("the network is cut")
        if self.latency:
            await anyio.sleep(self._rng.uniform(0, self.latency))

    async def deliver(self, count: int) -> None:
        """Return when received bytes may pass."""
        await self.pass_through()
        if self.rate is not None:
            await anyio.sleep(count / self.rate)

    def closed(self, connection: _Connection) -> None:
        if connection in self._open:
            self._open.remove(connection)

    def freeze(self) -> None:
        """Stop both directions until thaw(). What was sent before may arrive late."""
        if self._thawed.is_set():
            self._thawed = anyio.Event()

    def thaw(self) -> None:
        if not self.dead:
            self._thawed.set()

    def complete_handshakes(self) -> None:
        """Let new connections complete their handshake."""
        self.resets_handshakes = False

    def break_one(self) -> bool:
        """Break one connection, after some more bytes in one of its directions."""
        if not self._open:
            return False
        connection = self._rng.choice(self._open)
        bytes_left = self._rng.choice((0, 1, 3, 4, 7, self._rng.randint(0, 400)))
        if self._rng.random() < 0.5:
            connection.receive_left = bytes_left
        else:
            connection.send_left = bytes_left
        return True

    async def kill(self) -> None:
        """End the connections at both sides, as the end of a process does."""
        self.cut = True
        self._thawed.set()
        for connection in tuple(self._open):
            await connection.reset()

    def bury(self) -> None:
        """Stop all bytes, as the end of a machine does. The brokers do not even see an end."""
        self.dead = True
        self.freeze()


class _Connection:
    """Connection of a member; see ``ByteConnection`` of kohort's transport."""

    def __init__(self, network: MemberNetwork, inner: MemoryConnection) -> None:
        self._network = network
        self._inner = inner
        self._broken = False
        self.receive_left: int | None = None
        self.send_left: int | None = None

    async def recv_into(self, view: memoryview) -> int:
        if self.receive_left is not None:
            view = view[: self.receive_left]
            if not view:
                await self._break()
        self._check()
        count = await self._inner.recv_into(view[:PIECE] if self._network.rate else view)
        await self._network.deliver(count)
        self._check()
        if self.receive_left is not None:
            self.receive_left = max(0, self.receive_left - count)
        return count

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._network.pass_through()
        if self._network.round_trip:
            await anyio.sleep(self._network.round_trip)
        self._check()
        data = b"".join(buffers)
        if self.send_left is not None:
            part, self.send_left = data[: self.send_left], max(0, self.send_left - len(data))
            if len(part) < len(data) or not self.send_left:
                await self._inner.send([part])
                await self._break()
        await self._inner.send([data])

    async def aclose(self) -> None:
        self._network.closed(self)
        if not self._network.dead:
            await self._inner.aclose()

    async def reset(self) -> None:
        """End it for both sides and wake its waiting tasks."""
        self._broken = True
        await self._inner.aclose()

    async def _break(self) -> None:
        self._broken = True
        self._network.closed(self)
        await self._inner.aclose()
        raise ConnectionResetError("the connection broke")

    def _check(self) -> None:
        if self._broken:
            raise ConnectionResetError("the connection broke")
