"""Frames over TLS: records of any size, ends, errors, new keys and requests."""

from __future__ import annotations

import asyncio
import ctypes
import random
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kohort.config import ClientConfig, SecurityConfig, TlsConfig
from kohort.consumer.driver._thread_loop import new_event_loop
from kohort.errors import CorrelationIdError, FrameTooLargeError, KafkaConnectionError
from kohort.security import TlsContexts
from kohort.transport.cluster._tls_connector import AddressedServer, TlsConnector
from kohort.transport.network._tls import RECORD, TlsConnection
from tests.support.certificates import Certificates
from tests.support.tls_server import server_context
from tests.transport.frame_reading import LARGE, MAX, Reading, framed, pieces_of, run_once, sending

BODY = bytes(range(250)) * (LARGE // 250)
KEY_UPDATE_REQUESTED = 1
PATIENCE = 90
WRONG_RECORD, CHANGED_RECORD = (
    # OpenSSL has one reason for both since 3.2.
    ("record layer failure", "record layer failure")
    if ssl.OPENSSL_VERSION_INFO >= (3, 2)
    else ("bad record type", "decryption failed or bad record mac")
)


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
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 15):
        pytest.skip("the address of OpenSSL's object is not known")
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


def test_end_between_frames_is_the_end(ends: Ends) -> None:
    assert run_of(ends, [framed(BODY, BODY)]).bodies == [BODY, BODY]


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


def test_record_that_was_changed_is_named(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: reading.bodies)
    with plain_end(theirs) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
    with pytest.raises(KafkaConnectionError, match=f"TLS failed: {CHANGED_RECORD}"):
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, PATIENCE))
    reading.close()


def test_alert_inside_frame_is_named(ends: Ends) -> None:
    reading, theirs = ends.reading()
    reading.start()
    theirs.sendall(framed(BODY) + framed(BODY)[:100])
    run_until(ends.loop, lambda: reading.bodies)
    sock = reading.connection._socket
    socket.socket.send(sock, b"\x17\x03\x03\x00\x40" + bytes(64))
    with pytest.raises(ssl.SSLError):  # the peer responds with an alert and closes
        theirs.recv(100)
    plain_end(theirs).close()
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
    assert {WRONG_RECORD, CHANGED_RECORD} <= outcomes


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
        ends.loop.run_until_complete(asyncio.wait_for(reading.ended, 60))
    reading.close()


@pytest.mark.parametrize("size", [-1, MAX + 1, 0x15030300])
def test_length_out_of_bounds_is_an_error(ends: Ends, size: int) -> None:
    data = framed(BODY) + struct.pack(">i", size) + bytes(100)
    with pytest.raises(FrameTooLargeError):
        run_of(ends, [data])


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
