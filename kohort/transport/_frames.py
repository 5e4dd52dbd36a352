"""Frames out of a connection: small ones as bytes, large ones in a pooled buffer."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kohort.errors import (
    CorrelationIdError,
    FrameTooLargeError,
    KafkaConnectionError,
    MessageDecodeError,
)
from kohort.protocol import PREFIX_SIZE, Buffer, frame_size
from kohort.transport._bytes import ByteConnection, ReceiveFrame
from kohort.transport._pool import BufferLease, BufferPool

STAGING_SIZE = 32 << 10
"""What comes together is received together: prefixes, small frames, the start of a large one."""
IDLE_STAGING_SIZE = 2 << 10
"""Bytes of the staging buffer of a connection on which not more has come at once."""
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
    """A frame over the bound, of which the first bytes came: they may show what makes it large.

    ``size`` and ``limit`` are bytes without the length prefix, ``head`` the first bytes after it,
    ``version`` the API version of the response in it; -1 unknown.
    """

    def __init__(self, message: str, size: int, limit: int, head: bytes, version: int = -1) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit
        self.head = head
        self.version = version

    def with_text(self, message: str) -> OversizedFrameError:
        """The same with another message."""
        return OversizedFrameError(message, self.size, self.limit, self.head, self.version)


def check_correlation_id(data: Buffer, expected: int) -> None:
    """Raises CorrelationIdError if the frame answers another request, MessageDecodeError."""
    if len(data) < _CORRELATION_ID.size:
        raise MessageDecodeError(f"a frame of {len(data)} bytes is too short for an answer")
    (correlation_id,) = _CORRELATION_ID.unpack_from(data)
    if correlation_id != expected:
        raise CorrelationIdError(
            f"the answer carries correlation id {correlation_id}, the request had {expected}"
        )


class Frame:
    """One frame without its length prefix."""

    __slots__ = ("_lease", "data")

    def __init__(self, data: Buffer, lease: BufferLease | None = None) -> None:
        self.data = data
        self._lease = lease

    @property
    def is_pooled(self) -> bool:
        """True if the bytes are in a buffer that is used again."""
        return self._lease is not None

    def release(self) -> None:
        """Let the buffer be used again, as soon as nobody has a view of it any more."""
        self.data = b""
        if self._lease is not None:
            self._lease.release()


class FrameSource:
    """Reads a connection frame by frame. A read that is cancelled leaves it of no use."""

    def __init__(self, connection: ByteConnection, pool: BufferPool, max_size: int) -> None:
        self.max_size = max_size
        self.wants_head_of: Callable[[], int | None] = _no_id
        """Gives the correlation id of the next response if its first bytes are wanted, where it is
        over the bound; else None."""
        self.awaited_id: Callable[[], int | None] = _no_id
        """Gives the correlation id of the next response; None if no request was sent."""
        self.too_large: FrameTooLargeError | None = None
        """The error of a frame over the bound whose first bytes are being received."""
        self._connection = connection
        self._expect: Callable[[int], None] = getattr(connection, "expect", _ignore)
        self.pool = pool
        self._staging = memoryview(bytearray(IDLE_STAGING_SIZE))
        self._start = self._end = 0
        self._frame_receiver: Callable[[], ReceiveFrame | None] = getattr(
            connection, "frame_receiver", _no_receiver
        )
        self._receive_frame: ReceiveFrame | None = None
        """Receives the next frame in one piece. None after a small one."""
        self._last_size = 0

    async def read(self) -> Frame | None:
        """The next frame; None if the peer ended the connection between two frames.

        Raises FrameTooLargeError, CorrelationIdError as soon as the first bytes of a response tell,
        KafkaConnectionError when it ended inside a frame, and what the connection raises.
        """
        if self._receive_frame is not None and self._start == self._end:
            return await self._read_whole(self._receive_frame)
        if not await self._stage(PREFIX_SIZE):
            if self._end > self._start:
                raise KafkaConnectionError("it was closed inside a frame")
            return None
        prefix = self._staging[self._start : self._start + PREFIX_SIZE]
        self._start += PREFIX_SIZE
        return await self._read(await self._size(prefix))

    async def _size(self, prefix: Buffer) -> int:
        """The size of the frame; FrameTooLargeError."""
        try:
            return frame_size(prefix, self.max_size)
        except FrameTooLargeError as error:
            raise await self._with_head(error, int.from_bytes(prefix, "big", signed=True)) from None

    async def _read_whole(self, receive_frame: ReceiveFrame) -> Frame | None:
        """Receive a frame in one piece, into a buffer like that of the frame before."""
        lease = self.pool.reuse(self._last_size) or self.pool.allocate(self._last_size)
        try:
            prefix, filled = await receive_frame(lease.view[: self.max_size], self.awaited_id)
        except BaseException:
            lease.release()
            raise
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
        size = await self._size(prefix)
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
        """Check the correlation id of a frame that has not come as a whole, and may never."""
        if size >= _CORRELATION_ID.size and await self._stage(_CORRELATION_ID.size):
            self._check_start(self._staging[self._start : self._end])

    def _check_start(self, data: Buffer) -> None:
        """Check the correlation id in the first bytes of a frame, if it is there."""
        expected = self.awaited_id()
        if expected is not None and len(data) >= _CORRELATION_ID.size:
            check_correlation_id(data, expected)

    async def _with_head(self, error: FrameTooLargeError, size: int) -> FrameTooLargeError:
        """The error with the first bytes of the frame, if it is the response that is wanted.

        Only the correlation id is waited for in other frames: more bytes may never come.
        """
        self.too_large = error
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

    async def _stage(self, size: int) -> bool:
        """Receive until ``size`` bytes are staged; False if the peer ended before."""
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            if self._start + size > len(self._staging):
                self._make_room(size)
            received = await self._connection.recv_into(self._staging[self._end :])
            if not received:
                return False
            self._end += received
            if self._end == len(self._staging) < STAGING_SIZE:
                self._make_room(STAGING_SIZE)
        return True

    def _make_room(self, size: int) -> None:
        """Move what is staged to the beginning, of a larger buffer if ``size`` bytes need one."""
        rest = bytes(self._staging[self._start : self._end])
        if size > len(self._staging):
            self._staging = memoryview(bytearray(STAGING_SIZE))
        self._start, self._end = 0, len(rest)
        self._staging[: self._end] = rest

    async def _read_large(self, size: int) -> Frame:
        # What a peer merely announces is not allocated: without a buffer at hand, memory grows
        # with what has really come, at most eight times as much.
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
            filled += received
        self._expect(1)
        self._receive_frame, self._last_size = self._frame_receiver(), size
        return Frame(lease.view[:size], lease)

    @staticmethod
    def _moved(lease: BufferLease, other: BufferLease) -> BufferLease:
        """Copy what fits there to another buffer, and release the first one."""
        size = min(len(lease.view), len(other.view))
        other.view[:size] = lease.view[:size]
        lease.release()
        return other

    @staticmethod
    def _cut(received: int, size: int) -> KafkaConnectionError:
        return KafkaConnectionError(
            f"it was closed inside a frame, after {received} of {size} bytes"
        )
