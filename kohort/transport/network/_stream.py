"""StreamConnection: a byte stream of anyio as a connection, such as a proxy or a memory stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from kohort.protocol import Buffer
from kohort.types import LazyModule

if TYPE_CHECKING:
    from anyio import abc
else:
    abc = LazyModule("anyio.abc")

RECEIVE_SIZE = 1 << 20
"""Bytes of one receive. anyio's default of 64 KiB halves the throughput."""


class StreamConnection:
    """A :class:`~kohort.network.ByteConnection` that owns a byte stream."""

    def __init__(self, stream: abc.ByteStream) -> None:
        self._stream = stream
        self._rest = memoryview(b"")
        self._receiving: anyio.CancelScope | None = None
        self._closed = False

    async def recv_into(self, view: memoryview, /) -> int:
        """Receive at least one byte and return the number. Return 0 at the end of the stream."""
        if not self._rest:
            data = await self._receive()
            if not data:
                return 0
            self._rest = memoryview(data)
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    async def _receive(self) -> bytes | None:
        """Return the next bytes, or None at the end."""
        if self._closed:
            raise anyio.ClosedResourceError
        data: bytes | None = None
        # Not every stream wakes its receiver when another task closes it, so this scope does.
        with anyio.CancelScope() as self._receiving:
            try:
                data = await self._stream.receive(RECEIVE_SIZE)
            except anyio.EndOfStream:
                return None
            finally:
                self._receiving = None  # noqa: PLW2901
        if self._closed:
            raise anyio.ClosedResourceError
        return data

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send all of the buffers in order."""
        if self._closed:
            raise anyio.ClosedResourceError
        await self._stream.send(b"".join(buffers))

    async def aclose(self) -> None:
        """Close the stream. A task that waits in it gets an error."""
        if not self._closed:
            self._closed = True
            if self._receiving is not None:
                self._receiving.cancel()
            await self._stream.aclose()
