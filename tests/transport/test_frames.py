"""Frames from bytes that arrive in any pieces."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from kohort.errors import FrameTooLargeError, KafkaConnectionError
from kohort.transport import BufferPool
from kohort.transport.connection._frames import IDLE_STAGING_SIZE, STAGING_SIZE, Frame, FrameSource
from tests.transport.peer import MemoryConnection, connected_pair

pytestmark = pytest.mark.anyio
MAX = 20 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


async def read_all(source: FrameSource, *, release: bool = True) -> list[bytes]:
    bodies = []
    while (frame := await source.read()) is not None:
        bodies.append(bytes(frame.data))
        if release:
            frame.release()
    return bodies


async def fed(
    data: bytes, *, largest: int = 1 << 30, pool: BufferPool | None = None
) -> tuple[FrameSource, MemoryConnection]:
    ours, theirs = connected_pair(largest=largest)
    await theirs.send([data])
    return FrameSource(ours, pool or BufferPool(), MAX), theirs


@pytest.mark.parametrize("largest", [1, 3, 1000, 32768, 1 << 30])
async def test_frames_are_whole_however_the_bytes_come(largest: int) -> None:
    rng = random.Random(largest)
    sizes = [0, 1, 4, 5, 32767, 32768, 32769, 40, 0, 70_000]
    if largest > 1000:
        sizes += [3_000_000, 12, 9_500_000, 100_000]
    bodies = [rng.randbytes(size) for size in sizes]
    source, peer = await fed(framed(*bodies), largest=largest)
    await peer.aclose()
    assert await read_all(source) == bodies


async def test_large_frames_use_the_same_memory_again() -> None:
    pool = BufferPool()
    body = bytes(3_000_000)
    source, _ = await fed(framed(body, body, body), pool=pool)
    first = await source.read()
    assert first is not None
    first.release()
    free = pool.free_bytes
    for _ in range(2):
        frame = await source.read()
        assert frame is not None
        assert pool.free_bytes < free
        frame.release()
        assert pool.free_bytes == free


async def test_a_frame_that_is_kept_does_not_change() -> None:
    pool = BufferPool()
    bodies = [bytes([index]) * 200_000 for index in range(5)]
    source, _ = await fed(framed(*bodies), pool=pool)
    kept = []
    for _ in bodies:
        frame = await source.read()
        assert frame is not None
        kept.append(memoryview(frame.data)[10:20])
        frame.release()
    assert [bytes(view) for view in kept] == [body[10:20] for body in bodies]


async def test_the_end_between_two_frames_is_an_end() -> None:
    source, peer = await fed(framed(b"abc"))
    await peer.aclose()
    assert await read_all(source) == [b"abc"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0", "closed inside a frame"),
        (framed(b"x" * 100)[:50], "after 46 of 100 bytes"),
        (framed(bytes(5_000_000))[:2_000_000], "after 1999996 of 5000000 bytes"),
    ],
)
async def test_the_end_inside_a_frame_is_an_error(data: bytes, message: str) -> None:
    source, peer = await fed(data)
    await peer.aclose()
    with pytest.raises(KafkaConnectionError, match=message):
        await source.read()


@pytest.mark.parametrize("prefix", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
async def test_a_length_out_of_bounds_is_refused_before_the_body_comes(prefix: bytes) -> None:
    source, _ = await fed(prefix)
    with pytest.raises(FrameTooLargeError):
        await source.read()


async def test_memory_follows_what_came_and_not_what_was_announced() -> None:
    async def peak() -> int:
        source, peer = await fed(struct.pack(">i", MAX) + bytes(1000))
        await peer.aclose()
        tracemalloc.start()
        try:
            with pytest.raises(KafkaConnectionError):
                await source.read()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peaks = [await peak() for _ in range(3)]  # other threads can only increase a peak
    assert min(peaks) < 8 * 1000 + (1 << 20) + (1 << 18)


async def test_staging_is_small_until_more_comes_at_once() -> None:
    source, peer = await fed(framed(*[b"x" * 100] * 10))
    for _ in range(10):
        await source.read()
    assert len(source._staging) == IDLE_STAGING_SIZE
    await peer.send([framed(*[b"y" * 100] * 40)])
    assert [bytes((await _frame(source)).data) for _ in range(40)] == [b"y" * 100] * 40
    assert len(source._staging) == STAGING_SIZE


async def _frame(source: FrameSource) -> Frame:
    frame = await source.read()
    assert frame is not None
    return frame
