"""Reading of frames in the callbacks of an event loop, and a thread that sends them."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from kohort.transport import BufferPool, TcpConnection
from kohort.transport.connection._frames import FrameSource
from kohort.transport.network._tls import TlsConnection

MAX = 20 << 20
LARGE = 300_000


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Reading:
    """Frames of a connection, read in the callbacks of an event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: TcpConnection | TlsConnection
    ) -> None:
        self.loop = loop
        self.connection = connection
        self.pool = BufferPool()
        self.bodies: list[bytes] = []
        self.turns: list[int] = []
        """Calls of the callback up to each frame."""
        self.buffer_sizes: list[int] = []
        """Bytes of the buffer of each large frame."""
        self._calls = 0
        self.ended = loop.create_future()
        self.source = FrameSource(self.connection, self.pool, MAX)
        self._reader = self._read()

    async def _read(self) -> None:
        while (frame := await self.source.read()) is not None:
            self.bodies.append(bytes(frame.data))
            self.turns.append(self._calls)
            if isinstance(frame.data, memoryview):
                self.buffer_sizes.append(memoryview(frame.data.obj).nbytes)
            frame.release()

    def _on_readable(self) -> None:
        self._calls += 1
        try:
            self._reader.send(None)
        except StopIteration:
            self.connection.stop_reading()
            self.ended.set_result(None)
        except Exception as error:
            self.connection.stop_reading()
            self.ended.set_exception(error)

    def start(self) -> None:
        assert self.connection.read_with(self.loop, self._on_readable)

    def run(self) -> list[bytes]:
        """Return the frames after the peer has closed."""
        self.start()
        self.loop.run_until_complete(asyncio.wait_for(self.ended, 60))
        return self.bodies

    def close(self) -> None:
        self._reader.close()


def sending(theirs: Any, pieces: Iterable[bytes]) -> threading.Thread:
    """Start a thread that sends the pieces and closes."""

    def send() -> None:
        for piece in pieces:
            theirs.sendall(piece)
        theirs.close()

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def pieces_of(data: bytes, rng: random.Random, largest: int) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size = rng.randint(1, largest)
        yield data[position : position + size]
        position += size


def run_once(loop: asyncio.AbstractEventLoop) -> None:
    """Run the callbacks that are due."""
    loop.call_soon(loop.stop)
    loop.run_forever()
