"""TLS connections to a broker: a non-blocking SSLSocket, and the end of a failed handshake."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio

from kohort.broker.cluster._broker import Broker
from kohort.broker.security import ANONYMOUS, Listener, TlsFault
from kohort.protocol import Buffer

T = TypeVar("T")

HANDSHAKE_S = 30.0
"""Seconds that a client has for its handshake."""
_CLOSE_WAIT_S = 1.0
_HANDSHAKE_RECORD = b"\x16"
_INTERNAL_ERROR = bytes.fromhex("15030300020250")
"""The alert that Apache Kafka sends to a client that does not speak TLS."""
_NOT_TLS = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_JOIN_LIMIT = 1 << 14


class TlsServerConnection:
    """Connection over a non-blocking SSLSocket."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.peer_host = str(sock.getpeername()[0])

    async def handshake(self) -> None:
        """Complete the handshake; ssl.SSLError if that fails."""
        await self._until_done(self._sock.do_handshake)

    def subject(self) -> Sequence[object]:
        """Return the subject of the client's certificate, empty if there is none."""
        certificate = self._sock.getpeercert() or {}
        found = certificate.get("subject", ())
        return found if isinstance(found, tuple) else ()

    async def recv_into(self, view: memoryview) -> int:
        """Receive bytes and return their number, 0 at the end."""
        try:
            return await self._until_done(lambda: self._sock.recv_into(view))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all buffers. Small ones are joined, because TLS makes a record of each."""
        joined = bytearray()
        for buffer in buffers:
            if len(buffer) < _JOIN_LIMIT:
                joined += buffer
                continue
            await self._send_all(joined)
            joined = bytearray()
            await self._send_all(buffer)
        await self._send_all(joined)

    async def aclose(self) -> None:
        """Send close_notify and close, without waiting for the client's."""
        with suppress(OSError, ValueError):
            self._sock.unwrap()
        self._sock.close()

    async def _send_all(self, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            sent = await self._until_done(partial(self._sock.send, view))
            view = view[sent:]

    async def _until_done(self, function: Callable[[], T]) -> T:
        while True:
            try:
                return function()
            except ssl.SSLWantReadError:
                await anyio.wait_readable(self._sock)
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(self._sock)


async def accept_tls(
    broker: Broker, sock: socket.socket, listener: Listener
) -> tuple[TlsServerConnection, str] | None:
    """Do the handshake; return the connection and the client's principal, None if it failed."""
    sock.setblocking(False)
    security = broker.cluster.security
    fault = security.tls_fault(broker.node.id)
    try:
        if fault is not None and fault.kind == "slow":
            await _wait_until_stopped(fault)
        with anyio.fail_after(HANDSHAKE_S):
            if await _is_rejected_without_tls(sock, fault):
                return None
            context = security.context(listener, fault)
            wrapped = context.wrap_socket(
                sock,
                server_side=True,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
            sock = wrapped
            connection = TlsServerConnection(wrapped)
            await connection.handshake()
    except (OSError, ValueError):
        await _close_after_client(sock)
        return None
    except BaseException:
        sock.close()
        raise
    try:
        subject = connection.subject()
        principal = security.certificate_principal(listener, subject) if subject else ANONYMOUS
    except BaseException:
        await connection.aclose()
        raise
    if principal is None:
        await connection.aclose()
        return None
    return connection, principal


async def _wait_until_stopped(fault: TlsFault) -> None:
    with anyio.move_on_after(fault.seconds):
        await fault.stopped.wait()


async def _is_rejected_without_tls(sock: socket.socket, fault: TlsFault | None) -> bool:
    """Reject a client that sends no TLS, or that a fault selects; True if it was rejected.

    A client without TLS gets the bytes that Apache Kafka sends.
    """
    while True:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
            break
        except BlockingIOError:
            await anyio.wait_readable(sock)
    plain = fault is not None and fault.kind == "plain"
    if first == _HANDSHAKE_RECORD and not plain:
        return False
    if first:
        sock.send(_NOT_TLS if plain else _INTERNAL_ERROR)
    await _close_after_client(sock)
    return True


async def _close_after_client(sock: socket.socket) -> None:
    """Close the socket after the client, because closing it with unread bytes resets the
    connection.

    The client would get the reset instead of the alert, which has the reason of the failure.
    """
    if sock.fileno() < 0:
        return
    sock = plain = socket.socket(fileno=sock.detach())
    try:
        with anyio.move_on_after(_CLOSE_WAIT_S), suppress(OSError):
            plain.setblocking(False)
            plain.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not plain.recv(1 << 14):
                        break
                except BlockingIOError:
                    await anyio.wait_readable(plain)
    finally:
        sock.close()
