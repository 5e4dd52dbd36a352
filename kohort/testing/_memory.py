"""The network in memory: streams of bytes between tasks of one event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kohort.protocol import Buffer
from kohort.testing._broker import Broker
from kohort.testing._configs import ClusterConfig
from kohort.testing._memory_tls import check_tls
from kohort.testing._server import serve_connection
from kohort.testing.security import ANONYMOUS, Listener

HOST = "kohort.invalid"
"""A name that no resolver knows: a client without the connect hook reaches nothing."""
FIRST_PORT = 9092
_IN_FLIGHT = 1 << 20
"""Bytes that a stream takes before its writer has to wait."""


class Stream:
    """Bytes in one direction."""

    def __init__(self) -> None:
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._change = anyio.Event()
        self.ended = False
        """The writer has gone."""
        self.unread = False
        """The reader has gone."""

    def changed(self) -> None:
        self._change.set()
        self._change = anyio.Event()

    async def write(self, data: Buffer) -> None:
        while self._size >= _IN_FLIGHT and not self.unread and not self.ended:
            await self._change.wait()
        if self.ended:
            raise anyio.ClosedResourceError
        if self.unread:
            raise BrokenPipeError("the other end is closed")
        copy = memoryview(data if isinstance(data, bytes) else bytes(data))
        if copy:
            self._waiting.append(copy)
            self._size += len(copy)
            self.changed()

    async def read_into(self, view: memoryview) -> int:
        while not self._waiting:
            if self.unread:
                raise anyio.ClosedResourceError
            if self.ended:
                return 0
            await self._change.wait()
        count = 0
        while self._waiting and count < len(view):
            first = self._waiting.popleft()
            taken = min(len(first), len(view) - count)
            view[count : count + taken] = first[:taken]
            count += taken
            if taken < len(first):
                self._waiting.appendleft(first[taken:])
        self._size -= count
        self.changed()
        return count


class MemoryConnection:
    """One end of a connection; as kohort's client wants it from its connect hook."""

    def __init__(self, incoming: Stream, outgoing: Stream) -> None:
        self.peer_host = "127.0.0.1"
        self.principal = ANONYMOUS
        self._incoming = incoming
        self._outgoing = outgoing

    async def recv_into(self, view: memoryview) -> int:
        """How many bytes came; 0 at the end."""
        return await self._incoming.read_into(view)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all of them; waits while the other end has too much unread."""
        await self._outgoing.write(b"".join(buffers))

    async def aclose(self) -> None:
        """End both directions; whoever waits in it gets an error."""
        self._outgoing.ended = self._incoming.unread = True
        self._outgoing.changed()
        self._incoming.changed()


class MemoryNetwork:
    """Brokers are at :data:`HOST`, each listener at a port that exists here only."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._listening: dict[int, tuple[Broker, Listener]] = {}
        self._tasks: dict[int, TaskGroup] = {}
        self._early: dict[int, list[MemoryConnection]] = {}

    async def connect(self, host: str, port: int, certificate: str = "") -> MemoryConnection:
        """Connect to the listener at the port; ConnectionRefusedError if none is there.

        ``certificate``: the CN of the client's certificate, which listeners with TLS ask for.
        """
        await anyio.lowlevel.checkpoint()
        broker, listener = self._at(host, port)
        principal = await check_tls(broker, listener, certificate)
        if not broker.alive:
            raise ConnectionResetError("the broker died")
        there, back = Stream(), Stream()
        served = MemoryConnection(there, back)
        served.principal = principal
        if (tasks := self._tasks.get(port)) is None:
            self._early.setdefault(port, []).append(served)
        else:
            tasks.start_soon(serve_connection, broker, served, listener, principal)
        return MemoryConnection(back, there)

    def _at(self, host: str, port: int) -> tuple[Broker, Listener]:
        found = self._listening.get(port)
        if host != self._config.host or found is None or not found[0].alive:
            raise ConnectionRefusedError(f"no broker listens on {host}:{port}")
        return found

    def listen(self, broker: Broker) -> None:
        node = broker.node
        listeners = self._config.listeners
        for number, listener in enumerate(listeners):
            # The ports of the first listener come first, one for each broker.
            index = self._config.index_of(node.id) + number * self._config.brokers
            port = node.ports[listener.name] or FIRST_PORT + index
            node.ports[listener.name] = port
            self._listening[port] = broker, listener
            self._tasks.pop(port, None)

    async def serve(self, broker: Broker, tasks: TaskGroup) -> None:
        for listener in self._config.listeners:
            port = broker.node.ports[listener.name]
            self._tasks[port] = tasks
            for early in self._early.pop(port, ()):
                tasks.start_soon(serve_connection, broker, early, listener, early.principal)
        await anyio.sleep_forever()

    def ended(self, broker: Broker) -> None:
        for port in broker.node.ports.values():
            if self._listening.get(port, (None, None))[0] is broker:
                del self._listening[port]
                self._tasks.pop(port, None)

    def close(self) -> None:
        self._listening.clear()
        self._tasks.clear()
