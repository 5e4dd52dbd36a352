"""Interface of a network: connections that carry bytes, and a function that opens them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import anyio

from kohort.protocol import Buffer
from kohort.types import NamedTuple


class ByteConnection(Protocol):
    """A connection as a stream of bytes. Its failures are one of :data:`NETWORK_ERRORS`.

    One task may receive while another sends. Two tasks never receive or send at a time. Three
    methods are optional. ``expect(size)`` announces that the caller needs ``size`` more bytes
    before it can go on. The size 1 ends that. ``frame_receiver()`` returns a
    :data:`ReceiveFrame`, or None while there is none. ``progress()`` returns the
    :class:`Progress` of the bytes that were received and not returned yet, as far as it is known.
    An optional attribute ``is_encrypted`` is True if the connection needs no TLS of kohort's, as in
    the option ``connect_encrypts``.
    """

    async def recv_into(self, view: memoryview, /) -> int:
        """Receive at least one byte and return the number. Return 0 at the end of the stream."""
        ...

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send all of the buffers in order. After a cancellation the connection is unusable."""
        ...

    async def aclose(self) -> None:
        """Close the connection. Tasks that wait in it get an error. Idempotent."""
        ...


class Progress(NamedTuple):
    """A number of received bytes, and the times of the first and the latest ones.

    A time is 0.0 if it is not known.
    """

    size: int = 0
    first_at: float = 0.0
    last_at: float = 0.0


ReceiveFrame: TypeAlias = Callable[
    [memoryview, Callable[[], int | None]], Awaitable[tuple[bytes, int, Progress]]
]
"""Function that receives the next frame of the protocol, and no byte after it.

Its arguments are a view for the frame without its length prefix, and a function. The function
returns the correlation id of the next response, if that is known. The result is the bytes of the
prefix, the number of bytes in the view, and the progress. The prefix has fewer than 4 bytes if the
stream ended. The number is 0 if the frame does not fit in the view. A frame with another id may be
returned in part.
"""

Connect: TypeAlias = Callable[[str, int], Awaitable[ByteConnection]]
"""Function ``async (host, port) -> ByteConnection``, which raises :data:`NETWORK_ERRORS`."""

NETWORK_ERRORS = (
    OSError,
    EOFError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)


def works_in_callbacks(link: ByteConnection) -> bool:
    """True if it is a TcpConnection or TlsConnection, and not of a class derived from them."""
    return "reads_in_callbacks" in type(link).__dict__
