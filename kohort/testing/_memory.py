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
from kohort.testing._server import serve_connection

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
    """Brokers are at :data:`HOST`, each at a port that exists here only."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._listening: dict[int, Broker] = {}
        self._tasks: dict[int, TaskGroup] = {}
        self._early: dict[int, list[MemoryConnection]] = {}

    async def connect(self, host: str, port: int) -> MemoryConnection:
        """A connection to the broker at the port; ConnectionRefusedError if none is there."""
        await anyio.lowlevel.checkpoint()
        broker = self._listening.get(port)
        if host != self._config.host or broker is None or not broker.alive:
            raise ConnectionRefusedError(f"nobody is at {host}:{port}")
        there, back = Stream(), Stream()
        served = MemoryConnection(there, back)
        if (tasks := self._tasks.get(port)) is None:
            self._early.setdefault(port, []).append(served)
        else:
            tasks.start_soon(serve_connection, broker, served)
        return MemoryConnection(back, there)

    def listen(self, broker: Broker) -> None:
        node = broker.node
        node.port = node.port or FIRST_PORT + self._config.index_of(node.id)
        self._listening[node.port] = broker
        self._tasks.pop(node.port, None)

    async def serve(self, broker: Broker, tasks: TaskGroup) -> None:
        port = broker.node.port
        self._tasks[port] = tasks
        for connection in self._early.pop(port, ()):
            tasks.start_soon(serve_connection, broker, connection)
        await anyio.sleep_forever()

    def ended(self, broker: Broker) -> None:
        if self._listening.get(broker.node.port) is broker:
            del self._listening[broker.node.port]
            self._tasks.pop(broker.node.port, None)

    def close(self) -> None:
        self._listening.clear()
        self._tasks.clear()
