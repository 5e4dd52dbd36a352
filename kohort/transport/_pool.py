"""Receive buffers that are used again: fresh memory costs more than what is read into it."""

from __future__ import annotations

import math
import threading

SMALLEST = 1 << 16
"""Bytes. What is smaller is not worth a pool."""
MOST_WASTE = 2
"""A buffer of up to so many times the wanted size will do."""
MAX_FREE_BYTES = 64 << 20
IDLE_SECONDS = 5.0
"""Time after which an unused buffer is freed; twice as long at most."""


class BufferPool:
    """Free buffers, ``max_free_bytes`` of them together at most; the oldest go first.

    A buffer is never given out twice at a time: one that is leased is not in the pool, and one
    that came back while somebody still looks at it (a memoryview, or an array over it) stays put
    until he does not. A lease that is never released is garbage like any other object. Safe to
    use from several threads.
    """

    def __init__(self, max_free_bytes: int = MAX_FREE_BYTES) -> None:
        self._max_free_bytes = max_free_bytes
        self._lock = threading.Lock()
        self._free: list[bytearray] = []  # the one that came back last is at the end
        self._unused = 0  # so many of the oldest were there at the last trim, and since then
        self._trimmed_at = -math.inf
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes of the buffers that are not leased."""
        return self._free_bytes

    def reuse(self, size: int) -> BufferLease | None:
        """A buffer of ``size`` bytes or more out of the pool; None if it has none."""
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
        """A new buffer of ``size`` bytes or more."""
        return BufferLease(self, bytearray(_rounded(size)))

    def is_wasteful(self, lease: BufferLease, size: int) -> bool:
        """True if the lease's buffer is larger than one that reuse() gives for ``size`` bytes."""
        return len(lease.view) > _rounded(size) * MOST_WASTE

    def add_free(self, buffer: bytearray) -> None:
        """Take a buffer for the next one who needs it, in place of those that nobody needed."""
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

        To be called now and then, such as with each response: an idle connection brings these.
        ``now``: seconds of any clock.
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
        """Give it back; the second time does nothing. From any thread."""
        buffer, self._buffer = self._buffer, None
        self.view = memoryview(b"")
        if buffer is not None:
            self._pool.add_free(buffer)


def _rounded(size: int) -> int:
    """Up to a quarter more, so that buffers fit for sizes that differ a little."""
    step = 1 << max((size - 1).bit_length() - 3, 0)
    return max(SMALLEST, -(-size // step) * step)


def _is_unseen(buffer: bytearray) -> bool:
    """True if nobody has a view of it: only then does a bytearray let its length be changed."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
