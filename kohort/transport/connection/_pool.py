"""Pool of receive buffers. New memory costs more than the bytes read into it."""

from __future__ import annotations

import math
import threading

SMALLEST = 1 << 16
"""Bytes of the smallest buffer, below which a pool does not pay."""
MOST_WASTE = 2
"""Largest ratio of the size of a reused buffer to the requested size."""
MAX_FREE_BYTES = 64 << 20
IDLE_SECONDS = 5.0
"""Time after which an unused buffer is freed. It may take twice as long."""


class BufferPool:
    """Free buffers of at most ``max_free_bytes`` in all. The oldest are dropped first.

    A buffer is leased once at a time. A leased buffer is not in the pool. A released buffer with a
    memoryview or an array over it is not reused until that is gone. The garbage collector frees a
    lease that is never released. Safe to use from several threads.
    """

    def __init__(self, max_free_bytes: int = MAX_FREE_BYTES) -> None:
        self._max_free_bytes = max_free_bytes
        self._lock = threading.Lock()
        self._free: list[bytearray] = []  # the latest one is at the end
        self._unused = 0  # oldest buffers, unused since the last trim
        self._trimmed_at = -math.inf
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Number of bytes in buffers that are not leased."""
        return self._free_bytes

    def reuse(self, size: int) -> BufferLease | None:
        """Return a buffer of at least ``size`` bytes from the pool, or None."""
        largest = _rounded(size) * MOST_WASTE
        with self._lock:
            for index in range(len(self._free) - 1, -1, -1):
                buffer = self._free[index]
                if size <= len(buffer) <= largest and _is_unseen(buffer):
                    del self._free[index]
                    self._unused -= index < self._unused
                    self._free_bytes -= len(buffer)
                    return BufferLease(self, buffer)
        return None

    def allocate(self, size: int) -> BufferLease:
        """Return a new buffer of at least ``size`` bytes."""
        return BufferLease(self, bytearray(_rounded(size)))

    def is_wasteful(self, lease: BufferLease, size: int) -> bool:
        """True if the buffer is larger than reuse() allows for ``size`` bytes."""
        return len(lease.view) > _rounded(size) * MOST_WASTE

    def add_free(self, buffer: bytearray) -> None:
        """Add a free buffer, and drop the oldest ones if there are too many bytes."""
        size = len(buffer)
        if size > self._max_free_bytes:
            return
        with self._lock:
            while self._free_bytes + size > self._max_free_bytes:
                self._drop_oldest()
            self._free.append(buffer)
            self._free_bytes += size

    def trim(self, now: float) -> None:
        """Free the buffers that were not used since a trim at least :data:`IDLE_SECONDS` ago.

        It is called with each response, which idle connections also get. ``now`` has the seconds
        of any clock.
        """
        if self._free and now >= self._trimmed_at + IDLE_SECONDS:
            with self._lock:
                while self._unused:
                    self._drop_oldest()
                self._unused, self._trimmed_at = len(self._free), now

    def _drop_oldest(self) -> None:
        self._free_bytes -= len(self._free.pop(0))
        self._unused = max(0, self._unused - 1)


class BufferLease:
    """A buffer for one owner, until it is released."""

    __slots__ = ("_buffer", "_pool", "view")

    def __init__(self, pool: BufferPool, buffer: bytearray) -> None:
        self._pool = pool
        self._buffer: bytearray | None = buffer
        self.view: memoryview[int] = memoryview(buffer)

    def release(self) -> None:
        """Return it to the pool, from any thread. A second call does nothing."""
        buffer, self._buffer = self._buffer, None
        self.view = memoryview(b"")
        if buffer is not None:
            self._pool.add_free(buffer)


def _rounded(size: int) -> int:
    """Return the size, rounded up by at most a quarter, so that similar sizes share buffers."""
    step = 1 << max((size - 1).bit_length() - 3, 0)
    return max(SMALLEST, -(-size // step) * step)


def _is_unseen(buffer: bytearray) -> bool:
    """Return True if no view of the buffer exists.

    Only then does a bytearray allow a change of its length.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
