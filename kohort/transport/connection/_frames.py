"""Frames of a connection: small ones become bytes, large ones are in a pooled, leased buffer."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Generic, TypeVar

from kohort.errors import (
    CorrelationIdError,
    FrameTooLargeError,
    KafkaConnectionError,
    MessageDecodeError,
)
from kohort.protocol import PREFIX_SIZE, Buffer, Response, frame_size
from kohort.transport.connection._pool import BufferLease, BufferPool
from kohort.transport.network._bytes import ByteConnection, Progress, ReceiveFrame

STAGING_SIZE = 32 << 10
"""Size of the buffer that receives several small frames, or the start of a large one, at once."""
IDLE_STAGING_SIZE = 2 << 10
"""Size of the staging buffer until a connection receives more at once."""
FIRST_PIECE = 1 << 20
_CORRELATION_ID = struct.Struct(">i")
"""The first bytes of a response after its length prefix."""
GROWTH = 8


def _ignore(size: int) -> None:
    pass


def _no_id() -> int | None:
    return None


def _no_receiver() -> ReceiveFrame | None:
    return None


class OversizedFrameError(FrameTooLargeError):
    """A frame over the size limit, with its first bytes, which may show why it is large.

    ``size`` and ``limit`` are bytes without the length prefix. ``head`` has the first bytes after
    the prefix. ``version`` is the API version of the response, or -1 if unknown.
    """

    def __init__(self, message: str, size: int, limit: int, head: bytes, version: int = -1) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit
        self.head = head
        self.version = version

    def with_text(self, message: str) -> OversizedFrameError:
        """Return a copy with another message."""
        return OversizedFrameError(message, self.size, self.limit, self.head, self.version)


def check_correlation_id(data: Buffer, expected: int) -> None:
    """Raise CorrelationIdError for the response to another request, or MessageDecodeError."""
    if len(data) < _CORRELATION_ID.size:
        raise MessageDecodeError(f"a frame of {len(data)} bytes is too short for a response")
    (correlation_id,) = _CORRELATION_ID.unpack_from(data)
    if correlation_id != expected:
        raise CorrelationIdError(
            f"the response has correlation id {correlation_id}, the request had {expected}"
        )


class Frame:
    """One frame without its length prefix."""

    __slots__ = ("_lease", "data")

    def __init__(self, data: Buffer, lease: BufferLease | None = None) -> None:
        self.data = data
        self._lease = lease

    @property
    def is_pooled(self) -> bool:
        """True if the bytes are in a buffer of the pool."""
        return self._lease is not None

    def release(self) -> None:
        """Return the buffer to the pool, which waits until no view of it is left."""
        self.data = b""
        if self._lease is not None:
            self._lease.release()


class FrameSource:
    """A reader of the frames of a connection. It is unusable after a cancelled read."""

    def __init__(
        self,
        connection: ByteConnection,
        pool: BufferPool,
        max_size: int,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.max_size = max_size
        self.first_at: float | None = None
        """Time of the first byte of the current or latest frame."""
        self.last_at: float = -math.inf
        """Time of the latest known byte, of this reader or of the connection."""
        self.received_bytes: int = 0
        """Number of bytes that this reader has received."""
        self._seen_bytes = 0
        """Result of the latest received()."""
        self._clock = clock
        self._link_progress: Callable[[], Progress] = getattr(connection, "progress", Progress)
        self.wants_head_of: Callable[[], int | None] = _no_id
        """Function that returns the correlation id of the next response, or None.

        It returns the id if the first bytes are needed of a response over the size limit.
        """
        self.awaited_id: Callable[[], int | None] = _no_id
        """Function that returns the correlation id of the next response, or None."""
        self.too_large: FrameTooLargeError | None = None
        """Error of a frame over the size limit whose first bytes are being received."""
        self._connection = connection
        self._expect: Callable[[int], None] = getattr(connection, "expect", _ignore)
        self.pool = pool
        self._staging = memoryview(bytearray(IDLE_STAGING_SIZE))
        self._start = self._end = 0
        self._frame_receiver: Callable[[], ReceiveFrame | None] = getattr(
            connection, "frame_receiver", _no_receiver
        )
        self._receive_frame: ReceiveFrame | None = None
        """Function that receives the next frame in one piece, or None after a small one."""
        self._last_size = 0

    @property
    def is_unused(self) -> bool:
        """True before the first byte."""
        return self._start == self._end == 0

    async def read(self) -> Frame | None:
        """Return the next frame, or None if the peer ended the connection between two frames.

        Raises FrameTooLargeError, CorrelationIdError as soon as the first bytes of a response show
        it, and KafkaConnectionError if it ended inside a frame. Raises errors of the connection.
        """
        self.first_at = self.last_at if self._end > self._start else None
        if self._receive_frame is not None and self._start == self._end:
            return await self._read_whole(self._receive_frame)
        if not await self._stage(PREFIX_SIZE):
            if self._end > self._start:
                raise KafkaConnectionError("it was closed inside a frame")
            return None
        prefix = self._staging[self._start : self._start + PREFIX_SIZE]
        self._start += PREFIX_SIZE
        try:
            size = frame_size(prefix, self.max_size)
        except FrameTooLargeError as error:
            raise await self._with_head(error, prefix) from None
        return await self._read(size)

    async def _read_whole(self, receive_frame: ReceiveFrame) -> Frame | None:
        """Receive a frame in one piece, into a buffer of the size of the previous one."""
        lease = self.pool.reuse(self._last_size) or self.pool.allocate(self._last_size)
        try:
            prefix, filled, progress = await receive_frame(
                lease.view[: self.max_size], self.awaited_id
            )
        except BaseException:
            lease.release()
            raise
        self.received_bytes += progress.size
        self.first_at, self.last_at = progress.first_at, max(self.last_at, progress.last_at)
        size = int.from_bytes(prefix, "big", signed=True)
        if len(prefix) == PREFIX_SIZE and filled == size > STAGING_SIZE:
            self._last_size = size
            if self.pool.is_wasteful(lease, size):
                lease = self._moved(lease, self.pool.reuse(size) or self.pool.allocate(size))
            return Frame(lease.view[:size], lease)
        data = bytes(lease.view[:filled])
        lease.release()
        if not prefix:
            return None
        if len(prefix) < PREFIX_SIZE:
            raise KafkaConnectionError("it was closed inside a frame")
        if size > filled > 0:
            self._check_start(data)
            raise self._cut(filled, size)
        self._receive_frame = None
        try:
            size = frame_size(prefix, self.max_size)
        except FrameTooLargeError as error:
            raise await self._with_head(error, prefix) from None
        return Frame(data) if filled == size else await self._read(size)

    async def _read(self, size: int) -> Frame:
        """Receive a frame whose prefix was read."""
        if size > self._end - self._start:
            await self._check_id(size)
        if size > STAGING_SIZE:
            return await self._read_large(size)
        if not await self._stage(size):
            raise self._cut(self._end - self._start, size)
        data = bytes(self._staging[self._start : self._start + size])
        self._start += size
        return Frame(data)

    async def _check_id(self, size: int) -> None:
        """Check the correlation id of a frame that is not complete, and may never be."""
        if size >= _CORRELATION_ID.size and await self._stage(_CORRELATION_ID.size):
            self._check_start(self._staging[self._start : self._end])

    def _check_start(self, data: Buffer) -> None:
        """Check the correlation id if the first bytes of a frame contain it."""
        expected = self.awaited_id()
        if expected is not None and len(data) >= _CORRELATION_ID.size:
            check_correlation_id(data, expected)

    async def _with_head(self, error: FrameTooLargeError, prefix: Buffer) -> FrameTooLargeError:
        """Return the error, with the first bytes of the frame if ``wants_head_of`` has its id.

        In other frames only the correlation id is awaited, because more bytes may never come.
        """
        self.too_large = error
        size = int.from_bytes(prefix, "big", signed=True)
        correlation_id = self.wants_head_of()
        if size < 0 or correlation_id is None:
            return error
        expected = correlation_id.to_bytes(_CORRELATION_ID.size, "big", signed=True)
        await self._stage(_CORRELATION_ID.size)
        if bytes(self._staging[self._start : self._end])[: _CORRELATION_ID.size] != expected:
            return error
        await self._stage(min(size, STAGING_SIZE))
        head = bytes(self._staging[self._start : self._end])
        return OversizedFrameError(str(error), size, self.max_size, head)

    def _note(self, size: int) -> None:
        self.received_bytes += size
        self.last_at = self._clock()
        if self.first_at is None:
            self.first_at = self.last_at

    def received(self) -> int:
        """Return the number of bytes that have come so far, after an update of :attr:`last_at`."""
        size, _, last_at = self._link_progress()
        total = self.received_bytes + size
        if size and total > self._seen_bytes:
            self.last_at = max(self.last_at, last_at or self._clock())
        self._seen_bytes = total
        return total

    async def _stage(self, size: int) -> bool:
        """Receive until ``size`` bytes are staged. Return False if the stream ends before."""
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            if self._start + size > len(self._staging):
                self._make_room(size)
            received = await self._connection.recv_into(self._staging[self._end :])
            if not received:
                return False
            self._note(received)
            self._end += received
            if self._end == len(self._staging) < STAGING_SIZE:
                self._make_room(STAGING_SIZE)
        return True

    def _make_room(self, size: int) -> None:
        """Move the staged bytes to the beginning, of a larger buffer if ``size`` requires one."""
        rest = bytes(self._staging[self._start : self._end])
        if size > len(self._staging):
            self._staging = memoryview(bytearray(STAGING_SIZE))
        self._start, self._end = 0, len(rest)
        self._staging[: self._end] = rest

    async def _read_large(self, size: int) -> Frame:
        # An announced size alone allocates nothing. Without a free buffer, memory grows with the
        # bytes received, to at most eight times their number.
        lease = self.pool.reuse(size) or self.pool.allocate(min(size, FIRST_PIECE))
        filled = self._end - self._start
        lease.view[:filled] = self._staging[self._start : self._end]
        self._start = self._end = 0
        while filled < size:
            if filled == len(lease.view):
                lease = self._moved(lease, self.pool.allocate(min(size, filled * GROWTH)))
            self._expect(size - filled)
            received = await self._connection.recv_into(lease.view[filled:size])
            if not received:
                raise self._cut(filled, size)
            self._note(received)
            filled += received
        self._expect(1)
        self._receive_frame, self._last_size = self._frame_receiver(), size
        return Frame(lease.view[:size], lease)

    @staticmethod
    def _moved(lease: BufferLease, other: BufferLease) -> BufferLease:
        """Copy the bytes to another buffer as far as they fit, and release the first one."""
        size = min(len(lease.view), len(other.view))
        other.view[:size] = lease.view[:size]
        lease.release()
        return other

    @staticmethod
    def _cut(received: int, size: int) -> KafkaConnectionError:
        return KafkaConnectionError(
            f"it was closed inside a frame, after {received} of {size} bytes"
        )


R = TypeVar("R", bound=Response)


class Leased(Generic[R]):
    """A response whose bytes are in a pooled buffer until its release, from any thread."""

    __slots__ = ("_frame", "_response")

    def __init__(self, response: R, frame: Frame) -> None:
        self._response: R | None = response
        self._frame = frame

    @property
    def is_pooled(self) -> bool:
        """True if the buffer returns to the pool. Otherwise the response owns its bytes."""
        return self._frame.is_pooled

    @property
    def response(self) -> R:
        """The response. Raises ValueError after its release."""
        if self._response is None:
            raise ValueError("the response is released")
        return self._response

    def release(self) -> None:
        """Return the buffer to the pool. A second call does nothing."""
        self._response = None
        self._frame.release()
