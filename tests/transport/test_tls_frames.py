"""Whole frames over TLS, received and decrypted without the interpreter lock."""

from __future__ import annotations

import asyncio
import ctypes
import random
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.config import ClientConfig, SecurityConfig, TlsConfig
from kohort.consumer._thread_loop import new_event_loop
from kohort.errors import CorrelationIdError, FrameTooLargeError, KafkaConnectionError
from kohort.records import compiled_module
from kohort.security import TlsContexts
from kohort.transport._poller import SOURCES
from kohort.transport._tls import RECORD, TlsConnection
from kohort.transport._tls_connector import AddressedServer, TlsConnector
from kohort.transport._tls_records import records_of
from tests.support.certificates import Certificates
from tests.support.decoders import decoder_named
from tests.support.tls_server import server_context
from tests.transport.frame_reading import LARGE, MAX, Reading, framed, pieces_of, run_once, sending

BODY = bytes(range(250)) * (LARGE // 250)
KEY_UPDATE_REQUESTED = 1
PATIENCE = 10


@pytest.fixture(autouse=True)
def _compiled() -> None:
    decoder_named("compiled")
    if not hasattr(select, "epoll"):
        pytest.skip("the compiled selector needs epoll")


class Ends:
    """A factory of connections: the client's, which belongs to the loop, and the SSLSocket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, certificates: Certificates, stack: ExitStack
    ) -> None:
        self.loop = loop
        self.server = server_context(certificates)
        self._certificates = certificates
        self._stack = stack

    def pair(self) -> tuple[TlsConnection, ssl.SSLSocket]:
        tls = TlsConfig(ssl_cafile=self._certificates.ca)
        contexts = TlsContexts(SecurityConfig(security_protocol="SSL", tls=tls))
        connector = TlsConnector(ClientConfig(), contexts)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            ours = socket.create_connection(listener.getsockname())
            plain, _ = listener.accept()
        ours.setblocking(False)
        plain.settimeout(PATIENCE)
        connection = TlsConnection(ours, AddressedServer(connector, "localhost", port))
        theirs: list[ssl.SSLSocket] = []

        def shake_hands() -> None:
            theirs.append(self.server.wrap_socket(plain, server_side=True))

        thread = threading.Thread(target=shake_hands)
        thread.start()
        self.loop.run_until_complete(connection.handshake(PATIENCE))
        thread.join()
        self._stack.callback(lambda: self.loop.run_until_complete(connection.aclose()))
        self._stack.enter_context(theirs[0])
        return connection, theirs[0]

    def reading(self) -> tuple[Reading, ssl.SSLSocket]:
        connection, theirs = self.pair()
        return Reading(self.loop, connection), theirs


@pytest.fixture
def ends(certificates: Certificates) -> Iterator[Ends]:
    loop, _ = new_event_loop()
    with ExitStack() as stack:
        yield Ends(loop, certificates, stack)
    loop.close()


def run_of(ends: Ends, pieces: Iterable[bytes]) -> Reading:
    """Read until the peer closes. It sends one record for each piece of 16 KiB or less."""
    reading, theirs = ends.reading()
    thread = sending(theirs, pieces)
    try:
        reading.run()
    finally:
        reading.close()
        thread.join(PATIENCE)
    return reading


def run_until(loop: asyncio.AbstractEventLoop, is_done: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < end
        run_once(loop)


def plain_end(theirs: ssl.SSLSocket) -> socket.socket:
    """Return the peer's socket without TLS."""
    return socket.socket(fileno=theirs.detach())


def owner_of(sock: ssl.SSLSocket) -> Any:
    return sock._sslobj  # type: ignore[attr-defined]


def ssl_of(sock: ssl.SSLSocket) -> ctypes.c_void_p:
    """Return the address of OpenSSL's object."""
    words = (ctypes.c_void_p * 3).from_address(id(owner_of(sock)) + object.__basicsize__)
    return ctypes.c_void_p(words[1])


def update_key(sock: ssl.SSLSocket) -> None:
    """Send new keys with the next record, and request new ones from the other end."""
    library = ctypes.CDLL(sys.modules["_ssl"].__file__)
    assert library.SSL_key_update(ssl_of(sock), KEY_UPDATE_REQUESTED) == 1


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("largest", [1000, RECORD, 100_000])
def test_frames_are_whole_whatever_the_records(ends: Ends, version: str, largest: int) -> None:
    ends.server.maximum_version = ssl.TLSVersion[version]
    rng = random.Random(largest)
    sizes = [LARGE, LARGE, LARGE - 9, LARGE + 9, 40, LARGE, 0, LARGE, 2 * LARGE, 5, 32768, 32769]
    sizes += [rng.choice([3, 33_000, LARGE, 2 * LARGE]) for _ in range(20)]
    bodies = [rng.randbytes(size) for size in sizes]
    reading = run_of(ends, pieces_of(framed(*bodies), rng, largest))
    assert reading.bodies == bodies


def test_large_frames_need_one_turn_each(ends: Ends) -> None:
    rng = random.Random(1)
    bodies = [rng.randbytes(LARGE) for _ in range(8)]
    reading = run_of(ends, pieces_of(framed(*bodies), rng, 20_000))
    assert reading.bodies == bodies
    first, *others = reading.turns
    assert [turn - first for turn in others] <= list(range(1, 8))


@pytest.mark.parametrize("size", [100, 40_000])
def test_frame_in_last_record_of_another_is_read(ends: Ends, size: int) -> None:
    """OpenSSL holds its bytes, so the socket is not readable, and the peer sends nothing more."""
    reading, theirs = ends.reading()
    whole = framed(BODY, BODY, bytes(size))
    cut = len(whole) - size - 4 - 1000
    theirs.sendall(whole[:cut])
    for first in range(cut, len(whole), RECORD):
        theirs.sendall(whole[first : first + RECORD])
    reading.start()
    run_until(ends.loop, lambda: len(reading.bodies) == 3)
    assert reading.bodies[2] == bytes(size)
    assert reading.connection.frame_receiver() is not None
    reading.close()


def test_frames_of_many_connections_are_read(ends: Ends) -> None:
    """More connections are readable than the selector takes events at a time."""
    both = [ends.reading() for _ in range(70)]
    for reading, theirs in both:
        reading.start()
        theirs.sendall(framed(BODY))
    run_until(ends.loop, lambda: all(len(reading.bodies) == 1 for reading, _ in both))
    for _, theirs in both:
        theirs.sendall(framed(BODY) + framed(BODY))
    run_until(ends.loop, lambda: all(len(reading.bodies) == 3 for reading, _ in both))
    for reading, _ in both:
        reading.close()


# -- ends and errors --------------------------------------------------------------------------


@pytest.fixture(params=["compiled", "SSLSocket"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader: the compiled module, or Python's ssl module alone."""
    if request.param == "SSLSocket":
        monkeypatch.setattr("kohort.transport._tls.records_of", lambda sock: None)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("cut", [1, 3, 4, 5, RECORD, LARGE])
@pytest.mark.parametrize("ragged", [True, False])
def test_end_inside_frame_is_told(ends: Ends, cut: int, ragged: bool) -> None:
    reading, theirs = ends.reading()

    def send() -> None:
        theirs.sendall(framed(BODY) + framed(BODY)[:cut])
        if ragged:
            plain_end(theirs).close()
        else:
            theirs.close()

    thread = threading.Thread(target=send)
    thread.start()
    text = rf"after {cut - 4} of {LARGE} bytes" if cut > 4 else "closed inside a frame"
    with pytest.raises(KafkaConnectionError, match=text):
        reading.run()
    reading.close()
    thread.join(PATIENCE)


@pytest.mark.usefixtures("way")
def test_end_between_frames_is_the_end(ends: Ends) -> None:
    assert run_of(ends, [framed(BODY, BODY)]).bodies == [BODY, BODY]


@pytest.mark.usefixtures("way")
def test_reset_inside_frame_is_an_error(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: reading.bodies)
    plain = plain_end(theirs)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()
    with pytest.raises((ConnectionResetError, KafkaConnectionError)):
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, PATIENCE))
    reading.close()


@pytest.mark.usefixtures("way")
def test_record_that_was_changed_is_named(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: reading.bodies)
    with plain_end(theirs) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
    with pytest.raises(KafkaConnectionError, match="bad record mac"):
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, PATIENCE))
    reading.close()


@pytest.mark.usefixtures("way")
def test_alert_inside_frame_is_named(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: reading.bodies)
    sock = reading.connection._socket
    socket.socket.send(sock, b"\x17\x03\x03\x00\x40" + bytes(64))
    with pytest.raises(ssl.SSLError):  # the peer responds with an alert
        theirs.recv(100)
    with pytest.raises(KafkaConnectionError, match="alert bad record mac"):
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, PATIENCE))
    reading.close()


def test_hostile_records_end_in_typed_errors(ends: Ends) -> None:
    """The records have any type, version and length, in the middle of a frame."""
    outcomes = set()
    for seed in range(60):
        rng = random.Random(seed)
        reading, theirs = ends.reading()
        reading.start()
        theirs.sendall(framed(BODY) + framed(BODY)[: rng.randrange(1, 10)])
        run_until(ends.loop, lambda reading=reading: reading.bodies)  # type: ignore[misc]
        size = rng.choice([0, 1, 16, 300, 16_000, 65_535])
        head = struct.pack(">BHH", rng.choice([20, 21, 22, 23, 24, 99]), 0x0303, size)
        with plain_end(theirs) as plain:
            plain.sendall(head + rng.randbytes(min(size, rng.randrange(20_000))))
            plain.shutdown(socket.SHUT_WR)
            run_until(ends.loop, lambda reading=reading: reading.ended.done())  # type: ignore[misc]
        error = reading.ended.exception()
        assert isinstance(error, KafkaConnectionError), f"seed {seed}: {error!r}"
        outcomes.add(str(error).rpartition(": ")[2])
        reading.close()
    assert {"bad record type", "decryption failed or bad record mac"} <= outcomes


def test_error_of_one_connection_spares_the_others(ends: Ends) -> None:
    """OpenSSL keeps errors for each thread, not for each connection."""
    broken, theirs = ends.reading()
    others = [ends.reading() for _ in range(3)]
    for reading, peer in [(broken, theirs), *others]:
        reading.start()
        peer.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: broken.bodies and all(each.bodies for each, _ in others))
    with plain_end(theirs) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
    for _, peer in others:
        peer.sendall(framed(BODY)[100:])
    run_until(ends.loop, lambda: broken.ended.done())
    assert isinstance(broken.ended.exception(), KafkaConnectionError)
    run_until(ends.loop, lambda: all(len(each.bodies) == 2 for each, _ in others))
    for reading, _ in [(broken, theirs), *others]:
        reading.close()


def test_wrong_correlation_id_raises_before_frame_is_whole(ends: Ends) -> None:
    reading, theirs = ends.reading()
    awaited: int | None = None
    reading.source.awaited_id = lambda: awaited
    reading.start()
    theirs.sendall(framed(struct.pack(">i", 5) + bytes(LARGE)))
    run_until(ends.loop, lambda: reading.bodies)
    partial = framed(struct.pack(">i", 7) + bytes(LARGE))[:20]
    theirs.sendall(partial[:6])
    run_once(ends.loop)
    awaited = 6
    theirs.sendall(partial[6:])
    with pytest.raises(CorrelationIdError, match="id 7, the request had 6"):
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, 2))
    reading.close()


@pytest.mark.parametrize("size", [-1, MAX + 1, 0x15030300])
def test_length_out_of_bounds_is_an_error(ends: Ends, size: int) -> None:
    data = framed(BODY) + struct.pack(">i", size) + bytes(100)
    with pytest.raises(FrameTooLargeError):
        run_of(ends, [data])


def test_unfinished_frame_lets_go_of_its_buffer(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:50_000])
    run_until(ends.loop, lambda: reading.bodies)
    assert reading.pool.free_bytes == 0  # the next frame is in flight
    ends.loop.run_until_complete(reading.connection.aclose())
    theirs.close()
    run_once(ends.loop)
    assert reading.connection.frame_receiver() is None
    reading.close()
    assert reading.pool.reuse(LARGE) is not None


# -- new keys, and requests -------------------------------------------------------------------


def test_keys_change_inside_a_frame(ends: Ends) -> None:
    reading, theirs = ends.reading()
    data = framed(*[BODY] * 20)

    def send() -> None:
        for first in range(0, len(data), 70_000):
            theirs.sendall(data[first : first + 70_000])
            update_key(theirs)

    reading.start()
    thread = threading.Thread(target=send)
    thread.start()
    run_until(ends.loop, lambda: len(reading.bodies) == 20)
    thread.join(PATIENCE)
    assert reading.bodies == [BODY] * 20
    reading.close()


@pytest.mark.parametrize("cut", [2, 4, 6, 33_000])
def test_frame_goes_on_behind_what_python_received(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """After a wait to send, the compiled module stops and the SSLSocket gets the next byte."""
    reading, theirs = ends.reading()
    connection = reading.connection
    left = list(framed(BODY[:33_333])[cut:])
    reading.start()
    theirs.sendall(framed(BODY))
    run_until(ends.loop, lambda: reading.bodies)
    theirs.sendall(framed(BODY[:33_333])[:cut])
    theirs.close()

    async def recv_into(view: memoryview) -> int:
        for index in range(len(view)):
            view[index] = left.pop(0)
        return len(view)

    monkeypatch.setattr(connection, "recv_into", recv_into)
    run_until(ends.loop, lambda: len(reading.bodies) == 2)
    assert reading.bodies == [BODY, BODY[:33_333]]
    reading.close()


def test_requests_go_out_while_a_frame_is_awaited(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY))
    run_until(ends.loop, lambda: reading.bodies)
    assert reading.connection.send_now([b"a" * 10, b"", b"b" * 20]) == 30
    assert theirs.recv(100) == b"a" * 10 + b"b" * 20
    data = random.Random(5).randbytes(4 << 20)
    received = bytearray()

    def receive() -> None:
        while len(received) < len(data):
            received.extend(theirs.recv(1 << 16))
        theirs.sendall(framed(b"response"))

    thread = threading.Thread(target=receive)
    thread.start()
    ends.loop.run_until_complete(reading.connection.send([data[:100], data[100:]]))
    run_until(ends.loop, lambda: len(reading.bodies) == 2)
    thread.join(PATIENCE)
    assert received == data
    reading.close()


def test_request_to_a_closed_peer_is_an_error(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    plain = plain_end(theirs)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()
    with pytest.raises(ConnectionError):
        while True:
            reading.connection.send_now([b"x"])
    reading.close()


def test_frames_are_right_while_other_threads_are_busy(ends: Ends) -> None:
    """Two threads take the interpreter lock all the time."""
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice([50, 40_000, LARGE, 2 << 20])) for _ in range(60)]
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        reading = run_of(ends, pieces_of(framed(*bodies), rng, 200_000))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert reading.bodies == bodies


# -- whose records are read in C --------------------------------------------------------------


def test_records_are_taken_from_a_known_socket(ends: Ends) -> None:
    connection, _ = ends.pair()
    records = records_of(connection._socket)
    with pytest.raises(ssl.SSLWantReadError):
        records.read(10, memoryview(bytearray(10)))
    assert records.dry
    assert records.write(b"") == records.write(bytes(RECORD + 1)) == 0


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("sys.implementation", SimpleNamespace(name="pypy")),
        ("sys.version_info", (3, 15)),
        ("sys.version_info", (3, 10)),
        ("sys.platform", "darwin"),
        ("ssl.OPENSSL_VERSION", "LibreSSL 3.9.0"),
        ("ssl.OPENSSL_VERSION_INFO", (1, 1, 1)),
        ("ssl.SSLSocket.read", lambda *args: 0),
        ("ssl.SSLSocket.send", lambda *args: 0),
    ],
)
def test_no_records_are_taken_from_unknown_sockets(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, target: str, value: Any
) -> None:
    connection, _ = ends.pair()
    monkeypatch.setattr(target, value)
    assert records_of(connection._socket) is None


def test_no_records_are_taken_where_ssl_is_built_in(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = ends.pair()
    monkeypatch.delattr(sys.modules["_ssl"], "__file__")
    assert records_of(connection._socket) is None


def test_no_records_are_taken_from_other_objects(ends: Ends) -> None:
    compiled = compiled_module("_poller_c", "kohort.transport", SOURCES)
    (one, _), (other, _) = ends.pair(), ends.pair()
    sock, owner = one._socket, owner_of(one._socket)
    header = object.__basicsize__
    assert compiled.Records(sock, owner, header)
    for args in [
        (other._socket, owner, header),  # another weak reference
        (sock, owner, header + 8),
        (sock, SimpleNamespace(context=owner.context), header),
    ]:
        with pytest.raises(ValueError, match="the SSL of this object"):
            compiled.Records(*args)


def test_blocking_sockets_and_callbacks_stay_with_python(ends: Ends) -> None:
    connection, _ = ends.pair()
    sock = connection._socket
    sock.setblocking(True)
    assert records_of(sock) is None
    sock.setblocking(False)
    assert records_of(sock) is not None
    setattr(sock.context, "_msg_callback", lambda *args: None)  # noqa: B010
    assert records_of(sock) is None
