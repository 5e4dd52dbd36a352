"""TLS connections over non-blocking SSLSockets, which receive straight into the caller's buffer.

All calls are those of Python's ssl module, so any OpenSSL may be loaded beside its library.

OpenSSL returns one TLS record of at most 16 KiB at a time. One call therefore receives until the
buffer is full or the socket is empty. OpenSSL reads no further than the record that it decrypts. So
bytes in the system's buffer make the socket readable, unless a record was returned in part.

During a large response the system wakes the reader for many records at once, as for a
TcpConnection. Each record releases the interpreter's lock, so a wake-up for each is expensive.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

import anyio

from kohort.errors import KafkaTimeoutError
from kohort.logs import get_logger
from kohort.protocol import Buffer
from kohort.transport._printable import in_seconds
from kohort.transport.network._bytes import Progress
from kohort.transport.network._loop import CallbackLoop
from kohort.transport.network._tcp import HAS_LOW_WATER, unread, unsent_after
from kohort.transport.network._waits import SocketWaits
from kohort.types import NamedTuple

logger = get_logger("kohort.transport")

RECORD = 16 << 10
"""Largest TLS record in bytes. A shorter one is mostly the last of a message."""
BYTES_PER_ITERATION = 1 << 20
"""Bytes received before other tasks of the event loop run."""
LOW_WATER = 256 << 10
"""Most bytes to wait for at a time while a larger response is received."""
PARTIAL_RECORD = RECORD + (2 << 10) + 5
"""Most bytes of an incomplete record, which OpenSSL has received already (RFC 5246, 6.2.3)."""


NO_ALERT = (
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


class TlsServer(Protocol):
    """Interface of the server at one address."""

    peer: str

    async def wrap(self, sock: socket.socket, timeout: float) -> ssl.SSLSocket:
        """Return the socket for a handshake, which may be done already."""
        ...

    async def explain(self, error: OSError | ValueError, first_bytes: bytes) -> Exception:
        """Return the typed error for a failed handshake. It may open another connection."""
        ...

    def explain_later(self, error: OSError, *, in_handshake: bool) -> Exception:
        """Return the typed error for a failure after the handshake."""
        ...


async def within_handshake(
    server: TlsServer,
    timeout: float,
    shake_hands: Callable[[], Awaitable[None]],
    first_bytes: list[bytes],
) -> None:
    """Await ``shake_hands()`` for at most ``timeout`` seconds, and explain its failure.

    It appends the first received bytes to ``first_bytes``.
    """
    failure: OSError | ValueError
    try:
        with anyio.fail_after(timeout):
            await shake_hands()
        return
    except TimeoutError as error:
        if error.errno is None:
            raise KafkaTimeoutError(
                f"{server.peer}: the TLS handshake was not done within {in_seconds(timeout)}"
            ) from None
        failure = error
    except (OSError, ValueError) as error:
        failure = error
    raise await server.explain(failure, b"".join(first_bytes)) from failure


class UnfinishedWrite(NamedTuple):
    """Write that must be repeated unchanged, as OpenSSL could not complete it."""

    chunk: Buffer
    needs_read: bool
    """True if it waits until the socket is readable."""


class TlsConnection:
    """A :class:`~kohort.transport.ByteConnection` that owns a connected, non-blocking socket.

    handshake() comes first. Reader and sender share one SSL object, so both belong to one event
    loop and thread.
    """

    reads_in_callbacks = True

    def __init__(self, sock: socket.socket, server: TlsServer) -> None:
        self._plain: socket.socket | None = sock
        self._server = server
        self._closed = False
        self._dry = False
        """True if no bytes can be received before the socket becomes readable again."""
        self._expected = 1
        """Least number of bytes that are expected."""
        self._received_since_wait = 0
        """Number of bytes received since the last wait."""
        self._answered = False
        """True after the first data. The broker then accepted the client certificate."""
        self._read_end: Exception | None = None
        """Reason why no more can be read, EOFError() if the broker ended the connection."""
        self._unfinished: UnfinishedWrite | None = None
        self._low = 1
        """Number of bytes that the system waits for before it wakes the reader."""

    # -- handshake ----------------------------------------------------------------------------

    async def handshake(self, timeout: float) -> None:
        """Do the TLS handshake within ``timeout`` seconds.

        Raises TlsError, WrongListenerError, KafkaTimeoutError and one of NETWORK_ERRORS.
        """
        first_bytes: list[bytes] = []
        await within_handshake(
            self._server, timeout, lambda: self._shake_hands(timeout, first_bytes), first_bytes
        )

    async def _shake_hands(self, timeout: float, first_bytes: list[bytes]) -> None:
        plain = self._plain
        if plain is None:
            raise anyio.ClosedResourceError
        wrapped = await self._server.wrap(plain, timeout)
        self._plain = None
        self._socket = wrapped
        self._read = cast("Callable[[int, memoryview], int]", wrapped.read)
        self._pending: Callable[[], int] = wrapped.pending
        self._waits = SocketWaits(wrapped)
        while True:
            self._check_open()
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await anyio.wait_readable(wrapped)
                if not first_bytes:
                    first_bytes.append(socket.socket.recv(wrapped, 5, socket.MSG_PEEK))
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(wrapped)
            else:
                return

    # -- receiving ----------------------------------------------------------------------------

    def read_with(self, loop: CallbackLoop, on_readable: Callable[[], None]) -> bool:
        """Have asyncio's event loop call ``on_readable``, as for a TcpConnection."""
        if not self._waits.read_with(loop, on_readable):
            return False
        if self._pending():
            # Bytes that OpenSSL has decrypted do not make the socket readable.
            loop.call_soon(on_readable)
        return True

    def stop_reading(self) -> None:
        """Stop the calls of the reader of read_with()."""
        self._waits.stop_reading()

    def progress(self) -> Progress:
        """Return the number of bytes below the mark of expect(), which OpenSSL has not received."""
        return Progress() if self._low == 1 or self._closed else Progress(unread(self._socket))

    def expect(self, size: int, /) -> None:
        """Expect at least ``size`` bytes. 1 comes after the last of them.

        The system wakes the reader when most of them have come, or at the end of the stream. A
        peer that sends an alert inside a response closes the connection after it.
        """
        self._expected = size
        if size == 1:
            self._dry = not self._pending()
        low = max(1, min(size - PARTIAL_RECORD, LOW_WATER))
        if HAS_LOW_WATER and low != self._low and not self._closed:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
            self._low = low

    async def recv_into(self, view: memoryview, /) -> int:
        self._check_open()
        if self._dry:
            await self._wait_readable()
        read, size, filled = self._read, len(view), 0
        while filled < size:
            try:
                count = read(size - filled, view[filled:] if filled else view)
            except ssl.SSLWantReadError:
                if filled:
                    self._dry = True
                    break
                await self._wait_readable()
            except ssl.SSLWantWriteError:
                if filled:
                    break
                await self._waits.reader_until_writable()
                self._check_open()
            except OSError as error:
                self._stop(error)
                if not filled:
                    return self._end()
                break
            else:
                filled += count
                if count < RECORD:
                    if not count:
                        self._read_end = self._read_end or EOFError()
                        break
                    if self._expected <= filled and not self._pending():
                        self._dry = True
                        break
                elif filled >= BYTES_PER_ITERATION and not self._pending():
                    break
        self._answered = True
        self._received_since_wait += filled
        if self._received_since_wait >= BYTES_PER_ITERATION and not self._pending():
            self._dry = True
        return filled

    async def _wait_readable(self) -> None:
        if self._read_end is not None:
            self._dry = False
            return
        await self._waits.reader_until_readable()
        self._dry, self._received_since_wait = False, 0
        self._check_open()

    def _stop(self, error: OSError) -> None:
        """Store the end of reading, so that the next calls end in the same way."""
        if isinstance(error, ssl.SSLZeroReturnError):
            self._read_end = self._read_end or EOFError()
        elif isinstance(error, ssl.SSLEOFError):
            logger.debug("%s ended the connection without a TLS close_notify", self._server.peer)
            self._read_end = self._read_end or EOFError()
        else:
            self._read_end = self._server.explain_later(error, in_handshake=not self._answered)

    def _end(self) -> int:
        if self._has_failed():
            assert self._read_end is not None
            raise self._read_end
        return 0

    def _has_failed(self) -> bool:
        return self._read_end is not None and not isinstance(self._read_end, EOFError)

    # -- sending ------------------------------------------------------------------------------

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        left = unsent_after(buffers, 0)
        while left:
            if sent := self.send_now(left):
                left = unsent_after(left, sent)
            elif self._unfinished is not None and self._unfinished.needs_read:
                await self._waits.until_readable()
            else:
                await self._waits.until_writable()

    def send_now(self, buffers: Sequence[Buffer], /) -> int:
        """Send without waiting and return the number of bytes. Raises OSError."""
        self._check_open()
        chunk = joined(buffers) if self._unfinished is None else self._unfinished.chunk
        try:
            sent = self._socket.send(chunk)
        except ssl.SSLWantReadError:
            self._unfinished = UnfinishedWrite(chunk, needs_read=True)
            return 0
        except ssl.SSLWantWriteError:
            self._unfinished = UnfinishedWrite(chunk, needs_read=False)
            return 0
        except OSError as error:
            raise self._why_unsent(error) from error
        self._unfinished = None
        return sent

    def _why_unsent(self, error: OSError) -> Exception:
        """Return the alert that the broker sent before it closed, or the error of the write."""
        if not self._answered and not self._has_failed():
            try:
                self._read(1, memoryview(bytearray(1)))
            except NO_ALERT:
                pass
            except ssl.SSLError as alert:
                return self._server.explain_later(alert, in_handshake=True)
            except OSError:
                pass
        return self._server.explain_later(error, in_handshake=not self._answered)

    # -- the end ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close it. Send a close_notify if that needs no wait, and await none."""
        if self._closed:
            return
        self._closed = True
        if self._plain is not None:
            anyio.notify_closing(self._plain)
            self._plain.close()
            return
        self.stop_reading()
        self._waits.close()
        try:
            self._socket.unwrap()
        except (OSError, ValueError):
            pass  # the peer's close_notify is missing, or the connection is broken
        self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError


def joined(buffers: Sequence[Buffer]) -> Buffer:
    """Return the first bytes to send, either a large buffer or several small ones as one record."""
    first = buffers[0]
    size = len(memoryview(first).cast("B"))
    if len(buffers) == 1 or size >= RECORD:
        return first
    parts: list[Buffer] = []
    total = 0
    for buffer in buffers:
        size = len(memoryview(buffer).cast("B"))
        if parts and total + size > RECORD:
            break
        parts.append(buffer)
        total += size
    return b"".join(parts)
