"""TLS over any connection, such as one of the option ``connect``.

OpenSSL reads and writes buffers in memory, and this module moves their bytes over the connection.
Our own sockets use :class:`~kohort.transport.network._tls.TlsConnection`, which copies less.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from kohort.logs import get_logger
from kohort.protocol import Buffer
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection
from kohort.transport.network._tls import NO_ALERT, TlsServer, within_handshake

logger = get_logger("kohort.transport")

RECEIVE_SIZE = 64 << 10
"""Most bytes of one receive. They are four TLS records of the largest size."""
CLOSE_SECONDS = 0.2
"""Longest time to send a close_notify, in seconds."""

Wrap = Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject]
"""Function (incoming, outgoing) that returns the SSL object of a client."""


class TlsStream:
    """A :class:`~kohort.network.ByteConnection` that encrypts another one.

    handshake() comes first. Reader and sender share one SSL object, so both belong to one event
    loop and thread. Only the holder of the lock sends. A reader that has something to send, such as
    the response to a key update, leaves it to the holder instead of waiting for it.
    """

    def __init__(self, link: ByteConnection, wrap: Wrap, server: TlsServer) -> None:
        self._link = link
        self._server = server
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._wrap = wrap
        self._object: ssl.SSLObject | None = None
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._sending = anyio.Lock()
        self._closed = False
        self._answered = False
        """True after the first data. The broker then accepted the client certificate."""
        self._read_end: Exception | None = None
        """Reason why no more can be read, EOFError() if the broker ended the connection."""

    # -- handshake ----------------------------------------------------------------------------

    async def handshake(self, timeout: float) -> None:
        """Do the TLS handshake within ``timeout`` seconds.

        Raises TlsError, WrongListenerError, KafkaTimeoutError and one of NETWORK_ERRORS.
        """
        first_bytes: list[bytes] = []
        await within_handshake(
            self._server, timeout, lambda: self.shake_hands(first_bytes), first_bytes
        )

    async def shake_hands(self, first_bytes: list[bytes]) -> None:
        """Do the TLS handshake, and append the first received bytes. Raises OSError, ValueError."""
        shaken = self._object = self._wrap(self._incoming, self._outgoing)
        try:
            while True:
                try:
                    shaken.do_handshake()
                except ssl.SSLWantReadError:
                    await self._send_outgoing()
                    await self._receive(first_bytes)
                else:
                    return await self._send_outgoing()
        except (OSError, ValueError):
            if not self._incoming.eof:
                with suppress(*NETWORK_ERRORS):
                    await self._send_outgoing()  # the alert that says why
            raise
        except NETWORK_ERRORS as error:
            raise ConnectionResetError(f"the connection ended: {type(error).__name__}") from error

    @property
    def certificate(self) -> bytes | None:
        """The broker's certificate in DER, or None without one."""
        assert self._object is not None
        return self._object.getpeercert(binary_form=True)

    # -- receiving ----------------------------------------------------------------------------

    async def recv_into(self, view: memoryview, /) -> int:
        """Receive at least one byte and return the number. Return 0 at the end of the stream."""
        assert self._object is not None
        filled = 0
        while self._read_end is None and filled < len(view):
            self._check_open()
            try:
                count = self._object.read(len(view) - filled, view[filled:])
            except ssl.SSLWantReadError:
                if self._outgoing.pending and not self._sending.locked():
                    await self._send_outgoing()
                if filled:
                    break
                await self._receive()
            except OSError as error:
                self._stop(error)
            else:
                if not count:
                    self._read_end = EOFError()
                filled += int(count)
        self._answered = self._answered or filled > 0
        if not filled and not isinstance(self._read_end, EOFError | None):
            raise self._read_end
        return filled

    async def _receive(self, first_bytes: list[bytes] | None = None) -> None:
        count = await self._link.recv_into(self._buffer)
        if not count:
            self._incoming.write_eof()
            return
        if first_bytes == []:
            first_bytes.append(bytes(self._buffer[: min(count, 5)]))
        self._incoming.write(self._buffer[:count])

    def _stop(self, error: OSError) -> None:
        """Store the end of reading, so that the next calls end in the same way."""
        if isinstance(error, ssl.SSLZeroReturnError):
            self._read_end = EOFError()
        elif isinstance(error, ssl.SSLEOFError):
            logger.debug("%s ended the connection without a TLS close_notify", self._server.peer)
            self._read_end = EOFError()
        else:
            self._read_end = self._server.explain_later(error, in_handshake=not self._answered)

    # -- sending ------------------------------------------------------------------------------

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send all of the buffers in order."""
        assert self._object is not None
        self._check_open()
        left = memoryview(b"".join(buffers))
        try:
            while left:
                left = left[self._object.write(left) :]
            await self._send_outgoing()
        except NETWORK_ERRORS as error:
            if isinstance(why := await self._why_unsent(error), type(error)):
                raise
            raise why from error

    async def _send_outgoing(self) -> None:
        async with self._sending:
            while self._outgoing.pending:
                await self._link.send([self._outgoing.read()])

    async def _why_unsent(self, error: Exception) -> Exception:
        """Return the alert that the broker sent before it closed, or else the error."""
        if not self._answered and self._object is not None:  # the reader has not started
            try:
                await self._receive()
                self._object.read(1)
            except NO_ALERT:
                pass
            except ssl.SSLError as alert:
                return self._server.explain_later(alert, in_handshake=True)
            except NETWORK_ERRORS:
                pass
        if isinstance(error, OSError):
            return self._server.explain_later(error, in_handshake=not self._answered)
        return error

    # -- the end ------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close it. Send a close_notify if that needs little time, and await none."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._object is not None and not self._sending.locked():
                with anyio.move_on_after(CLOSE_SECONDS):
                    await self._send_close_notify(self._object)
        finally:
            await self._link.aclose()

    async def _send_close_notify(self, closing: ssl.SSLObject) -> None:
        with suppress(OSError, ValueError):  # the peer's close_notify is missing
            closing.unwrap()
        with suppress(*NETWORK_ERRORS):
            await self._send_outgoing()

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
