"""Byte streams of anyio as connections."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import ByteStream

from kohort.transport import StreamConnection

pytestmark = pytest.mark.anyio


class Stream(ByteStream):
    """A stream of these chunks that does not notice a close in another task."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.sent = b""
        self.asked: list[int] = []
        self.closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        self.asked.append(max_bytes)
        await anyio.lowlevel.checkpoint()
        if not self.chunks:
            await anyio.sleep_forever()
        if not self.chunks[0]:
            raise anyio.EndOfStream
        return self.chunks.pop(0)

    async def send(self, item: bytes) -> None:
        self.sent += item

    async def send_eof(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


async def test_what_was_received_is_given_out_piece_by_piece() -> None:
    stream = Stream(b"hello world", b"!", b"")
    connection = StreamConnection(stream)
    view = memoryview(bytearray(8))
    received = []
    while size := await connection.recv_into(view):
        received.append(bytes(view[:size]))
    assert received == [b"hello wo", b"rld", b"!"]
    assert set(stream.asked) == {1 << 20}


async def test_buffers_are_sent_in_order() -> None:
    stream = Stream()
    await StreamConnection(stream).send([b"a", memoryview(b"bc"), bytearray(b"d")])
    assert stream.sent == b"abcd"


async def test_closing_wakes_who_waits_to_receive() -> None:
    stream = Stream()
    connection = StreamConnection(stream)
    raised = []

    async def wait() -> None:
        try:
            await connection.recv_into(memoryview(bytearray(8)))
        except anyio.ClosedResourceError as error:
            raised.append(error)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await connection.aclose()
            await connection.aclose()
    assert len(raised) == 1
    assert stream.closed
    with pytest.raises(anyio.ClosedResourceError):
        await connection.recv_into(memoryview(bytearray(8)))
    with pytest.raises(anyio.ClosedResourceError):
        await connection.send([b"x"])


async def test_a_cancelled_receive_is_cancelled() -> None:
    connection = StreamConnection(Stream())
    with anyio.move_on_after(0.01) as scope:
        await connection.recv_into(memoryview(bytearray(8)))
    assert scope.cancelled_caught
