"""A long line between clients and the brokers of a MemoryCluster, on trio's virtual clock."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import trio
from anyio.abc import TaskGroup

from kohort.protocol import Buffer

PIECE = 1 << 16


class LongLine:
    """A line of ``seconds`` for a round trip. All connections share its rate from the brokers."""

    def __init__(
        self,
        connect: Callable[[str, int], Awaitable[Any]],
        tasks: TaskGroup,
        seconds: float,
        rate: float,
    ) -> None:
        self.connections = 0
        """Number of connections that were opened."""
        self.seconds = seconds
        self._connect = connect
        self._tasks = tasks
        self._rate = rate
        self._free_at = 0.0

    async def connect(self, host: str, port: int) -> FarConnection:
        """Connect to a broker at the other end, as the connect hook of clients."""
        await anyio.sleep(self.seconds)
        self.connections += 1
        connection = FarConnection(await self._connect(host, port), self)
        self._tasks.start_soon(connection.carry_out)
        self._tasks.start_soon(connection.carry_in)
        return connection

    def arrival(self, size: int) -> float:
        """Take the line for these bytes, and return the time at which the last of them arrives."""
        self._free_at = max(anyio.current_time(), self._free_at) + size / self._rate
        return self._free_at + self.seconds / 2


class FarConnection:
    """A connection over a long line. All bytes of a connection may be on their way at once."""

    is_encrypted = True

    def __init__(self, inner: Any, line: LongLine) -> None:
        self.peer_host = inner.peer_host
        self._inner = inner
        self._line = line
        self._out, self._to_send = trio.open_memory_channel[tuple[float, bytes]](math.inf)
        self._arrived, self._in = trio.open_memory_channel[tuple[float, bytes]](math.inf)
        self._rest = memoryview(b"")

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send bytes, which the broker gets half a round trip later."""
        at = anyio.current_time() + self._line.seconds / 2
        await self._out.send((at, b"".join(buffers)))

    async def recv_into(self, view: memoryview) -> int:
        """Receive bytes that have arrived."""
        if not self._rest:
            try:
                at, data = await self._in.receive()
            except trio.EndOfChannel:
                return 0
            await anyio.sleep_until(at)
            self._rest = memoryview(data)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    async def aclose(self) -> None:
        """Close both ends."""
        self._out.close()
        self._arrived.close()
        await self._inner.aclose()

    async def carry_out(self) -> None:
        """Carry bytes to the broker."""
        try:
            async for at, data in self._to_send:
                await anyio.sleep_until(at)
                await self._inner.send([data])
        except (anyio.ClosedResourceError, trio.ClosedResourceError, OSError):
            pass  # one of the ends has closed

    async def carry_in(self) -> None:
        """Carry bytes from the broker."""
        piece = memoryview(bytearray(PIECE))
        try:
            while size := await self._inner.recv_into(piece):
                await self._arrived.send((self._line.arrival(size), bytes(piece[:size])))
        except (anyio.ClosedResourceError, trio.ClosedResourceError, OSError):
            pass  # one of the ends has closed
        self._arrived.close()


@asynccontextmanager
async def long_line(
    connect: Callable[[str, int], Awaitable[Any]], seconds: float, rate: float = math.inf
) -> AsyncIterator[LongLine]:
    """Run a line, as LongLine describes it."""
    async with anyio.create_task_group() as tasks:
        yield LongLine(connect, tasks, seconds, rate)
        tasks.cancel_scope.cancel()
