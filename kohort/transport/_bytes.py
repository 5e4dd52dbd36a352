"""What the core asks of a network: bytes in, bytes out, and a way to get a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import anyio

from kohort.protocol import Buffer


class ByteConnection(Protocol):
    """A connection as a stream of bytes. Its failures are one of :data:`NETWORK_ERRORS`.

    One task receives while another sends; never two of a kind at a time. It may have a method
    ``expect(size)``, which is told that so many bytes are to come before anything can be done (1:
    what was expected has come). It may have a method ``frame_receiver()``, which returns a
    :data:`ReceiveFrame`, or None as long as there is none.
    """

    async def recv_into(self, view: memoryview, /) -> int:
        """Receive at least one byte, as many as are there; 0 when the peer has ended."""
        ...

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send all of the buffers in order. Cancelled half-way, the connection is of no use."""
        ...

    async def aclose(self) -> None:
        """Close it, also while other tasks wait in it: they get an error. Idempotent."""
        ...


ReceiveFrame: TypeAlias = Callable[
    [memoryview, Callable[[], int | None]], Awaitable[tuple[bytes, int]]
]
"""Receives the next frame of the protocol, and nothing behind it.

It takes a view for the frame without its length prefix, and a function that returns the correlation
id of the next response, if that is known. It returns the bytes of the prefix, fewer than 4 if the
peer ended, and the number of bytes in the view: 0 if the frame does not fit there. It returns a
part of a frame that begins with another id.
"""

Connect: TypeAlias = Callable[[str, int], Awaitable[ByteConnection]]
"""``async (host, port) -> ByteConnection``; raises one of :data:`NETWORK_ERRORS`."""

NETWORK_ERRORS = (
    OSError,
    EOFError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)
