"""Whole frames, received without the interpreter lock by the consumer thread's selector."""

from __future__ import annotations

import asyncio
import random
import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kohort.consumer.driver._thread_loop import WatchedSelector, new_event_loop
from kohort.errors import CorrelationIdError, FrameTooLargeError, KafkaConnectionError
from kohort.protocol import Buffer
from kohort.records import compiled_module
from kohort.transport import TcpConnection
from kohort.transport.network._poller import SOURCES, FrameSelector
from kohort.transport.network._tcp import unsent_after
from tests.support.decoders import decoder_named
from tests.transport.frame_reading import LARGE, MAX, Reading, framed, pieces_of, run_once, sending

Ends: TypeAlias = tuple[socket.socket, socket.socket]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    decoder_named("compiled")
    if not hasattr(select, "epoll"):
        pytest.skip("the compiled selector needs epoll")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop, _ = new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The client's end of a connection, non-blocking, and the peer's end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(10)
        yield ours, theirs


def run_of(
    loop: asyncio.AbstractEventLoop,
    ends: Ends,
    data: Iterable[bytes],
) -> Reading:
    reading = Reading(loop, TcpConnection(ends[0]))
    thread = sending(ends[1], data)
    try:
        reading.run()
    finally:
        reading.close()
        thread.join(60)
    return reading


@pytest.mark.parametrize("largest", [1000, 100_000, 1 << 30])
def test_frames_are_whole_however_the_bytes_come(
    loop: asyncio.AbstractEventLoop, ends: Ends, largest: int
) -> None:
    rng = random.Random(largest)
    sizes = [LARGE, LARGE, LARGE - 9, LARGE + 9, 40, LARGE, 0, LARGE, 2 * LARGE, 5, 32768, 32769]
    sizes += [rng.choice([3, 33_000, LARGE, 2 * LARGE]) for _ in range(20)]
    bodies = [rng.randbytes(size) for size in sizes]
    reading = run_of(loop, ends, pieces_of(framed(*bodies), rng, largest))
    assert reading.bodies == bodies


def test_frame_like_the_previous_takes_one_loop_iteration(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    rng = random.Random(1)
    bodies = [rng.randbytes(LARGE) for _ in range(8)]
    reading = run_of(loop, ends, pieces_of(framed(*bodies), rng, 20_000))
    assert reading.bodies == bodies
    first, *others = reading.turns
    assert [turn - first for turn in others] <= list(range(1, 8))


def test_an_end_between_two_frames_is_the_end(loop: asyncio.AbstractEventLoop, ends: Ends) -> None:
    body = bytes(LARGE)
    assert run_of(loop, ends, [framed(body, body)]).bodies == [body, body]


def test_buffer_fits_frame_when_the_one_before_was_larger(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    bodies = [bytes(8 << 20), random.Random(2).randbytes(40_000), bytes(40_000)]
    reading = run_of(loop, ends, [framed(*bodies)])
    assert reading.bodies == bodies
    assert reading.buffer_sizes == [8 << 20, 1 << 16, 1 << 16]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_no_size_is_reported_when_prefix_is_cut(
    loop: asyncio.AbstractEventLoop, ends: Ends, cut: int
) -> None:
    body = bytes(LARGE)
    with pytest.raises(KafkaConnectionError, match=r"(?m)closed inside a frame$"):
        run_of(loop, ends, [framed(body), framed(body)[:cut]])


@pytest.mark.parametrize("cut", [1, 3, 4, 5, LARGE])
def test_an_end_inside_a_frame_is_an_error(
    loop: asyncio.AbstractEventLoop, ends: Ends, cut: int
) -> None:
    body = bytes(LARGE)
    with pytest.raises(KafkaConnectionError, match="closed"):
        run_of(loop, ends, [framed(body), framed(body)[:cut]])


def test_a_reset_inside_a_frame_is_an_error(loop: asyncio.AbstractEventLoop, ends: Ends) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    body = bytes(LARGE)
    abort = struct.pack("ii", 1, 0)

    def pieces() -> Iterator[bytes]:
        yield framed(body) + framed(body)[:100]
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)

    thread = sending(theirs, pieces())
    with pytest.raises((ConnectionResetError, KafkaConnectionError)):
        reading.run()
    reading.close()
    thread.join(60)


def test_wrong_correlation_id_raises_before_frame_is_whole(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    awaited: int | None = None
    reading = Reading(loop, TcpConnection(ours))
    reading.source.awaited_id = lambda: awaited
    reading.start()
    theirs.sendall(framed(struct.pack(">i", 5) + bytes(LARGE)))
    while not reading.bodies:
        run_once(loop)

    partial = framed(struct.pack(">i", 7) + bytes(LARGE))[:20]
    theirs.sendall(partial[:6])
    run_once(loop)
    awaited = 6
    theirs.sendall(partial[6:])
    with pytest.raises(CorrelationIdError, match="id 7, the request had 6"):
        loop.run_until_complete(asyncio.wait_for(reading.ended, 60))
    reading.close()


def test_frame_with_awaited_correlation_id_is_received(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    bodies = [struct.pack(">i", -(1 << 31) + 9 + number) + bytes(LARGE) for number in range(3)]
    bodies += [struct.pack(">i", number) + bytes(LARGE) for number in range(3)]
    reading = Reading(loop, TcpConnection(ends[0]))
    awaited = [None, None, None, 0, 1, 2, None]
    reading.source.awaited_id = lambda: awaited[len(reading.bodies)]
    thread = sending(ends[1], pieces_of(framed(*bodies), random.Random(4), 50_000))
    assert reading.run() == bodies
    reading.close()
    thread.join(60)


@pytest.mark.parametrize("size", [-1, MAX + 1, 0x15030300])
def test_a_length_out_of_bounds_is_an_error(
    loop: asyncio.AbstractEventLoop, ends: Ends, size: int
) -> None:
    data = framed(bytes(LARGE)) + struct.pack(">i", size) + bytes(100)
    with pytest.raises(FrameTooLargeError):
        run_of(loop, ends, [data])


def test_partly_received_frame_frees_its_buffer_when_it_ends(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    theirs.sendall(framed(bytes(LARGE)))
    theirs.sendall(framed(bytes(LARGE))[:1000])
    reading.start()

    while not reading.bodies:
        run_once(loop)
    assert reading.pool.free_bytes == 0  # the next frame is in flight
    reading.close()
    assert reading.pool.reuse(LARGE) is not None
    loop.run_until_complete(reading.connection.aclose())


def test_a_request_goes_out_while_frames_are_received(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    reading.start()
    buffers: list[Buffer] = [b"a" * 10, memoryview(b"b" * 20), bytearray(b"c" * 5)]
    assert reading.connection.send_now(buffers) == 35
    assert theirs.recv(100) == b"a" * 10 + b"b" * 20 + b"c" * 5
    data = random.Random(5).randbytes(8 << 20)
    received = bytearray()

    def receive() -> None:
        while len(received) < len(data):
            received.extend(theirs.recv(1 << 16))

    async def send() -> None:
        await reading.connection.send([data[:100], data[100:]])

    thread = threading.Thread(target=receive)
    thread.start()
    loop.run_until_complete(send())
    thread.join(60)
    assert received == data
    reading.close()
    loop.run_until_complete(reading.connection.aclose())


def test_many_small_buffers_are_sent_in_few_pieces(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    reading.start()
    buffers: list[Buffer] = [b"abcdefgh" for _ in range(20_000)]
    left, pieces, received = buffers, 0, 0
    while left:
        sent = reading.connection.send_now(left)
        left, pieces = unsent_after(left, sent), pieces + 1
        while received < 8 * 20_000 - sum(map(len, left)):
            received += len(theirs.recv(1 << 20))
        assert pieces < 10
    reading.close()
    loop.run_until_complete(reading.connection.aclose())


def test_large_request_goes_out_while_frame_is_awaited(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    theirs.sendall(framed(bytes(LARGE)))
    reading.start()
    while not reading.bodies:
        run_once(loop)
    request = random.Random(6).randbytes(16 << 20)
    received = bytearray()

    def serve() -> None:
        while len(received) < len(request):
            received.extend(theirs.recv(1 << 20))
        theirs.sendall(framed(b"response"))
        theirs.close()

    async def send() -> None:
        async with asyncio.timeout(10):
            await reading.connection.send([request])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    loop.run_until_complete(send())
    thread.join(60)
    assert received == request
    while len(reading.bodies) < 2:
        run_once(loop)
    assert reading.bodies[1] == b"response"
    reading.close()
    loop.run_until_complete(reading.connection.aclose())


def test_sending_to_a_peer_that_reads_nothing_waits(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    reading = Reading(loop, TcpConnection(ends[0]))
    reading.start()
    while reading.connection.send_now([bytes(1 << 16)]):
        pass
    assert reading.connection.send_now([b"x"]) == 0
    reading.close()
    loop.run_until_complete(reading.connection.aclose())


def test_sending_to_a_peer_that_is_gone_is_an_error(
    loop: asyncio.AbstractEventLoop, ends: Ends
) -> None:
    ours, theirs = ends
    reading = Reading(loop, TcpConnection(ours))
    reading.start()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(ConnectionError):
        while True:
            reading.connection.send_now([b"x"])
    reading.close()
    loop.run_until_complete(reading.connection.aclose())


def test_the_selector_reports_what_epolls_does() -> None:
    ours, theirs = socket.socketpair()
    selector = WatchedSelector()
    assert isinstance(selector.frames, FrameSelector)
    other = selectors.EpollSelector()
    both: list[selectors.BaseSelector] = [selector, other]
    steps: list[Callable[[selectors.BaseSelector], object]] = [
        lambda s: s.register(ours, selectors.EVENT_READ, "data"),
        lambda s: theirs.send(b"x"),
        lambda s: s.modify(ours, selectors.EVENT_READ | selectors.EVENT_WRITE, "more"),
        lambda s: s.modify(ours, selectors.EVENT_WRITE),
        lambda s: ours.recv(10),
        lambda s: s.modify(ours, selectors.EVENT_READ),
        lambda s: theirs.close(),
        lambda s: s.unregister(ours),
    ]
    for index, step in enumerate(steps):
        for each in both:
            if each is selector or index not in (1, 4, 6):
                step(each)
        assert selector.select(0) == other.select(0)
        assert dict(selector.get_map()) == dict(other.get_map())
    assert selector.select(0.001) == []
    assert selector.select(-1) == []
    ours.close()
    for each in both:
        each.close()


def test_a_wait_without_a_limit_ends_with_an_event() -> None:
    selector = WatchedSelector()
    assert selector.frames is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        selector.register(ours, selectors.EVENT_READ)
        thread = threading.Thread(target=theirs.send, args=[b"x"])
        thread.start()
        [(key, events)] = selector.select(None)
        thread.join(60)
    assert (key.fileobj, events) == (ours, selectors.EVENT_READ)
    selector.close()


def test_programs_with_another_selector_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    selector = WatchedSelector()
    assert selector.frames is None
    selector.close()


def test_the_plain_modules_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_PURE", "1")
    selector = WatchedSelector()
    assert selector.frames is None
    selector.close()


def test_module_refers_to_no_function_of_openssl() -> None:
    """A program may have several OpenSSLs loaded, and only Python's ssl module knows its own."""
    compiled = compiled_module("_poller_c", "kohort.transport.network", SOURCES)
    content = Path(compiled.__file__).read_bytes()
    assert b"epoll_wait" in content
    for name in (b"SSL_", b"dlsym", b"dlopen"):
        assert name not in content
