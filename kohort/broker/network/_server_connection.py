"""A connection over a non-blocking socket, and the request frames that it receives."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

import anyio

from kohort.protocol import PREFIX_SIZE, Buffer, frame_size

_BUFFERS_AT_ONCE = 512
"""Buffers of one sendmsg(), below the limit of every system."""
_READ_AHEAD = 1 << 14
_FIRST_ALLOCATION = 1 << 16
"""Bytes of a frame that are allocated before any was received; more than the read-ahead."""


class ServerConnection(Protocol):
    """The connection that a broker expects of a network."""

    peer_host: str

    async def recv_into(self, view: memoryview) -> int:
        """Receive bytes and return their number, 0 at the end."""
        ...

    async def send(self, buffers: Sequence[Buffer]) -> None: ...

    async def aclose(self) -> None: ...


class SocketConnection:
    """Connection over a non-blocking TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.peer_host = str(sock.getpeername()[0])

    async def recv_into(self, view: memoryview) -> int:
        while True:
            try:
                return self._sock.recv_into(view)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)

    def has_ended(self) -> bool:
        """True if the peer has closed the connection and all its bytes were received."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, buffers: Sequence[Buffer]) -> None:
        unsent = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while unsent:
            try:
                sent = self._sock.sendmsg(unsent[:_BUFFERS_AT_ONCE])
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
                continue
            done = 0
            while done < len(unsent) and sent >= len(unsent[done]):
                sent -= len(unsent[done])
                done += 1
            del unsent[:done]
            if sent:
                unsent[0] = unsent[0][sent:]

    async def aclose(self) -> None:
        self._sock.close()


class RequestFrames:
    """Frames of a connection's bytes. A large frame is received into its final buffer."""

    def __init__(self, connection: ServerConnection, max_size: int) -> None:
        self.max_size = max_size
        """Largest size of a frame in bytes."""
        self._connection = connection
        self._buffer = memoryview(bytearray(_READ_AHEAD))
        self._start = 0
        self._end = 0

    async def next(self) -> bytearray | None:
        """Return the next frame without its prefix, None at the end.

        FrameTooLargeError is raised as soon as the prefix of a frame is received.
        """
        while self._end - self._start < PREFIX_SIZE:
            if not await self._fill():
                return None
        start = self._start + PREFIX_SIZE
        size = frame_size(self._buffer[self._start : start], self.max_size)
        # A client that announces a large frame without sending it must not cause its allocation.
        frame = bytearray(min(size, _FIRST_ALLOCATION))
        received = min(size, self._end - start)
        frame[:received] = self._buffer[start : start + received]
        self._start = start + received
        if not await self._receive(frame, received):
            return None
        if size > _FIRST_ALLOCATION:
            first_part, frame = frame, bytearray(size)
            frame[:_FIRST_ALLOCATION] = first_part
            if not await self._receive(frame, _FIRST_ALLOCATION):
                return None
        return frame

    async def _receive(self, frame: bytearray, received: int) -> bool:
        """Fill a frame that has its first bytes; return False if the connection ends before."""
        with memoryview(frame) as view:
            while received < len(frame):
                count = await self._connection.recv_into(view[received:])
                if not count:
                    return False
                received += count
        return True

    async def _fill(self) -> bool:
        left = self._end - self._start
        self._buffer[:left] = self._buffer[self._start : self._end].tobytes()
        self._start, self._end = 0, left
        count = await self._connection.recv_into(self._buffer[left:])
        self._end += count
        return count > 0
