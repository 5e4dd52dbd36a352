"""Reads that have to send and writes that have to receive, as after a key update of TLS 1.3.

Python cannot request a key update, so the SSL object is one that follows a script.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort.transport.network._loop import callback_loop
from kohort.transport.network._tls import TlsConnection
from kohort.transport.network._waits import SocketWaits

pytestmark = pytest.mark.anyio
PATIENCE = 90.0


class ScriptedSocket(socket.socket):
    """A socket whose read() and send() first raise the exceptions of their scripts."""

    reads: deque[Exception]
    sends: deque[Exception]
    sent: list[bytes]

    def read(self, size: int, view: memoryview) -> int:
        if self.reads:
            raise self.reads.popleft()
        try:
            return self.recv_into(view[:size])
        except BlockingIOError:
            raise ssl.SSLWantReadError from None

    def send(self, data: Any, flags: int = 0) -> int:
        self.sent.append(bytes(data))
        if self.sends:
            raise self.sends.popleft()
        return super().send(data)

    def pending(self) -> int:
        return 0

    def unwrap(self) -> None:
        raise ssl.SSLWantReadError


class NamedAlert(Exception):
    """The typed error of an alert."""


class NoServer:
    peer = "b:9093"

    async def wrap(self, sock: socket.socket, timeout: float) -> ssl.SSLSocket:
        raise NotImplementedError

    async def explain(self, error: OSError | ValueError, first_bytes: bytes) -> Exception:
        return error

    def explain_later(self, error: OSError, *, in_handshake: bool) -> Exception:
        return NamedAlert(error.reason) if isinstance(error, ssl.SSLError) else error


@asynccontextmanager
async def scripted(
    *, reads: tuple[Exception, ...] = (), sends: tuple[Exception, ...] = ()
) -> AsyncIterator[tuple[TlsConnection, ScriptedSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    sock = ScriptedSocket(fileno=ours.detach())
    sock.setblocking(False)
    theirs.setblocking(False)
    sock.reads, sock.sends, sock.sent = deque(reads), deque(sends), []
    connection = TlsConnection(sock, NoServer())
    made: Any = connection
    made._plain, made._socket, made._read = None, sock, sock.read
    made._pending, made._waits = sock.pending, SocketWaits(sock)
    try:
        with anyio.fail_after(PATIENCE), theirs:
            yield connection, sock, theirs
    finally:
        await connection.aclose()


def fill(sock: socket.socket) -> int:
    """Send until the system accepts no more."""
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += socket.socket.send(sock, bytes(1 << 16))
    return sent


def drain(sock: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            sock.recv(1 << 20)


async def test_read_waits_until_it_can_send() -> None:
    """The read must not spin. Each try takes an exception of the script."""
    wants = ssl.SSLWantWriteError
    async with scripted(reads=(wants(), wants(), wants())) as (connection, sock, theirs):
        fill(sock)
        got: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                got.append(await connection.recv_into(memoryview(bytearray(10))))

            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            theirs.send(b"data")
            await anyio.wait_all_tasks_blocked()
            assert len(sock.reads) == 2
            drain(theirs)
        assert got == [4]


async def test_reader_and_sender_wait_for_room_together() -> None:
    wants = ssl.SSLWantWriteError
    async with scripted(reads=(wants(),), sends=(wants(),)) as (connection, sock, theirs):
        fill(sock)
        got: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                got.append(await connection.recv_into(memoryview(bytearray(10))))

            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(connection.send, [b"request"])
            await anyio.wait_all_tasks_blocked()
            theirs.send(b"data")
            drain(theirs)
        assert got == [4]
        assert sock.sent[-1] == b"request"


@pytest.mark.parametrize("reader_waits", [True, False])
async def test_write_waits_until_it_can_receive(reader_waits: bool) -> None:
    async with scripted(sends=(ssl.SSLWantReadError(),)) as (connection, sock, theirs):
        got: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                got.append(await connection.recv_into(memoryview(bytearray(10))))

            if reader_waits:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
            tasks.start_soon(connection.send, [b"request"])
            await anyio.wait_all_tasks_blocked()
            assert sock.sent == [b"request"]
            theirs.send(b"data")
        assert sock.sent == [b"request", b"request"]
        assert theirs.recv(100) == b"request"
        assert got == ([4] if reader_waits else [])


async def test_write_is_repeated_with_the_same_bytes() -> None:
    """OpenSSL refuses a repeated write that is shorter."""
    async with scripted(sends=(ssl.SSLWantWriteError(),)) as (connection, sock, theirs):
        assert connection.send_now([b"first ", b"second "]) == 0
        await connection.send([b"first ", b"second ", b"third"])
        assert sock.sent == [b"first second ", b"first second ", b"third"]
        assert theirs.recv(100) == b"first second third"


async def test_failed_write_is_explained_by_the_alert_before_it() -> None:
    """A broker that refuses the client certificate may close before the request is sent."""
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] alert")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    async with scripted(reads=(alert,), sends=(BrokenPipeError(),)) as (connection, _, _theirs):
        with pytest.raises(NamedAlert, match="CERTIFICATE_REQUIRED"):
            await connection.send([b"request"])
    async with scripted(sends=(BrokenPipeError(),)) as (connection, _, _theirs):
        with pytest.raises(BrokenPipeError):
            await connection.send([b"request"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_callback_waits_until_it_can_send() -> None:
    """The reader is no task, and the sender waits to send, too."""
    wants = ssl.SSLWantWriteError
    script = scripted(reads=(wants(), ssl.SSLWantReadError(), wants()), sends=(wants(),))
    async with script as (connection, sock, theirs):
        got: list[bytes] = []
        done = anyio.Event()

        async def receive() -> None:
            view = memoryview(bytearray(10))
            while sum(map(len, got)) < 8:
                got.append(bytes(view[: await connection.recv_into(view)]))
            done.set()

        reader = receive()
        calls = 0

        def on_readable() -> None:
            nonlocal calls
            calls += 1
            try:
                reader.send(None)
            except StopIteration:
                connection.stop_reading()

        loop = callback_loop()
        assert loop is not None
        fill(sock)
        assert connection.read_with(loop, on_readable)
        async with anyio.create_task_group() as tasks:
            theirs.send(b"data")
            tasks.start_soon(connection.send, [b"request"])
            await anyio.wait_all_tasks_blocked()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert calls == 1  # no call for readable data before it can send
            drain(theirs)
            while not sock.sent[1:]:
                await anyio.lowlevel.checkpoint()
            theirs.send(b"more")
            await done.wait()
        assert b"".join(got) == b"datamore"
        assert sock.sent == [b"request", b"request"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_callback_wakes_a_write_that_has_to_receive() -> None:
    async with scripted(sends=(ssl.SSLWantReadError(),)) as (connection, sock, theirs):
        got: list[int] = []

        async def receive() -> None:
            got.append(await connection.recv_into(memoryview(bytearray(10))))
            await connection.recv_into(memoryview(bytearray(10)))

        reader = receive()
        loop = callback_loop()
        assert loop is not None
        assert connection.read_with(loop, lambda: reader.send(None))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.send, [b"request"])
            await anyio.wait_all_tasks_blocked()
            assert sock.sent == [b"request"]
            theirs.send(b"data")
        assert sock.sent == [b"request", b"request"]
        assert got == [4]
        connection.stop_reading()
        reader.close()
