"""Receive buffers that are used again: fresh memory costs more than what is read into it."""

from __future__ import annotations

import threading
from collections import defaultdict

SMALLEST = 16
"""log2 of the smallest size: 64 KiB. What is smaller is not worth a pool."""
CLASSES_ABOVE = 2
"""A buffer of up to so many size classes above the wanted one will do."""
MAX_FREE_BYTES = 32 << 20


class BufferPool:
    """Free buffers by size class (powers of two), of ``max_free_bytes`` together at most.

    A buffer is never given out twice at a time: one that is leased is not in the pool, and one
    that came back while somebody still looks at it (a memoryview, or an array over it) stays put
    until he does not. A lease that is never released is garbage like any other object. Safe to
    use from several threads.
    """

    def __init__(self, max_free_bytes: int = MAX_FREE_BYTES) -> None:
        self._max_free_bytes = max_free_bytes
        self._lock = threading.Lock()
        self._free: defaultdict[int, list[bytearray]] = defaultdict(list)
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes of the buffers that are not leased."""
        return self._free_bytes

    def reuse(self, size: int) -> Lease | None:
        """A buffer of ``size`` bytes or more out of the pool; None if it has none."""
        wanted = _size_class(size)
        with self._lock:
            for size_class in range(wanted, wanted + CLASSES_ABOVE + 1):
                buffers = self._free[size_class]
                for index in range(len(buffers) - 1, -1, -1):
                    if _is_unseen(buffers[index]):
                        self._free_bytes -= 1 << size_class
                        return Lease(self, buffers.pop(index))
        return None

    def make(self, size: int) -> Lease:
        """A new buffer of ``size`` bytes or more."""
        return Lease(self, bytearray(1 << _size_class(size)))

    def give_back(self, buffer: bytearray) -> None:
        """Take a buffer for the next one who needs it, if there is room."""
        with self._lock:
            if self._free_bytes + len(buffer) <= self._max_free_bytes:
                self._free[_size_class(len(buffer))].append(buffer)
                self._free_bytes += len(buffer)


class Lease:
    """A buffer for one owner, until it is released."""

    __slots__ = ("_buffer", "_pool", "view")

    def __init__(self, pool: BufferPool, buffer: bytearray) -> None:
        self._pool = pool
        self._buffer: bytearray | None = buffer
        self.view = memoryview(buffer)

    def release(self) -> None:
        """Give it back; the second time does nothing. From any thread."""
        buffer, self._buffer = self._buffer, None
        self.view = memoryview(b"")
        if buffer is not None:
            self._pool.give_back(buffer)


def _size_class(size: int) -> int:
    return max(SMALLEST, (size - 1).bit_length())


def _is_unseen(buffer: bytearray) -> bool:
    """True if nobody has a view of it: only then does a bytearray let its length be changed."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
