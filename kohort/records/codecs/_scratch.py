"""Memory for decompression, reused from batch to batch."""

from __future__ import annotations

from typing import Final

_GRAIN = 64 * 1024
_KEPT = 4 * 1024 * 1024
"""Bytes that are always kept for the next batch. Most batches are far smaller."""
_PATIENCE = 16
_PLAUSIBLE_RATIO = 7
_PLAUSIBLE = 384 * 1024


class Scratch:
    """A buffer for one thread that grows on request.

    The result of :meth:`take` is valid until the next call. New memory costs as much as filling it,
    so up to 4 MiB are kept. More is kept only while batches continue to need it. The first such
    batch gets separate memory, and 16 smaller batches free the larger buffer.
    """

    __slots__ = ("_buffer", "_keeps_large", "_large", "ratio")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._large = 0  # batches left that count as close to a large one
        self._keeps_large = False
        self.ratio: float = 0.0
        """Compression ratio of the latest batch."""

    @property
    def size(self) -> int:
        """Number of bytes that are kept."""
        return len(self._buffer)

    def begin(self) -> None:
        """Begin a batch. The memory of the previous one is free."""
        self._keeps_large = self._large > 0
        if self._large:
            self._large -= 1
        elif len(self._buffer) > _KEPT:
            self._buffer = bytearray()

    def take(self, size: int) -> bytearray:
        """Return at least ``size`` bytes of any content. A batch may call it again for more."""
        if size > _KEPT:
            self._large = _PATIENCE
        if len(self._buffer) >= size:
            return self._buffer
        if size <= _KEPT:
            wanted = max(size, 2 * len(self._buffer))
            size = min(_KEPT, -(-wanted // _GRAIN) * _GRAIN)
        elif not self._keeps_large:
            return bytearray(size)
        self._buffer = bytearray()  # freed before the next one is created
        self._buffer = bytearray(size)
        return self._buffer

    def grow(self, buffer: bytearray, filled: int, data: bytes) -> bytearray:
        """Return the filled bytes and the data in a buffer of more than 4 MiB.

        A resized bytearray moves its pages instead of its bytes. A second buffer of a doubled size
        would need up to twice the memory.
        """
        self._large = _PATIENCE
        if buffer is self._buffer and not self._keeps_large:
            buffer = bytearray(memoryview(buffer)[:filled])  # the next batches need the former one
        try:
            buffer[filled:] = data
        except BufferError:  # an earlier result is still in use
            buffer = bytearray(memoryview(buffer)[:filled])
            buffer += data
        if self._keeps_large:
            self._buffer = buffer
        return buffer

    def plausible(self, compressed: int, most: int) -> int:
        """Return the size of :meth:`Output.plausible` without a budget."""
        if most <= _PLAUSIBLE:
            return most
        ratio = max(_PLAUSIBLE_RATIO, 1.5 * self.ratio)
        return min(most, int(ratio * compressed) + _PLAUSIBLE)

    def kept_view(self) -> memoryview:
        """Return the kept memory, for a batch that fits in it."""
        return memoryview(self._buffer)

    def release(self) -> None:
        """Free the kept memory."""
        self._buffer = bytearray()
        self._large = 0


class Output:
    """Decompressed bytes of one batch, which fill a scratch from its beginning."""

    __slots__ = ("_scratch", "budget", "buffer", "size")

    def __init__(self, scratch: Scratch, budget: int) -> None:
        scratch.begin()
        self._scratch: Final = scratch
        self.budget: Final = budget
        self.buffer = bytearray()
        self.size = 0
        """Number of filled bytes."""

    def reserve(self, size: int) -> memoryview:
        """Return the room after the filled bytes, in a buffer of ``size`` bytes in all."""
        if len(self.buffer) < size:
            filled = memoryview(self.buffer)[: self.size] if self.size else b""
            self.buffer = bytearray()  # an empty buffer is freed before the next one is created
            self.buffer = self._scratch.take(size)
            self.buffer[: self.size] = filled
        return memoryview(self.buffer)[self.size : size]

    def add(self, data: bytes) -> None:
        """Append the data. Room that is too small is doubled, up to 4 MiB."""
        end = self.size + len(data)
        if end > _KEPT and end > len(self.buffer):
            self.buffer = self._scratch.grow(self.buffer, self.size, data)
            self.size = end
            return
        if end > len(self.buffer):
            self.reserve(max(end, min(2 * len(self.buffer), self.budget, _KEPT)))
        self.buffer[self.size : end] = data
        self.size = end

    def plausible(self, data: memoryview, most: int) -> int:
        """Return the room to make while it is unverified that ``data`` becomes ``most`` bytes."""
        return min(self._scratch.plausible(len(data), most), self.budget)

    def finished(self, compressed: int) -> memoryview:
        """Return the filled bytes, which had ``compressed`` bytes before."""
        self._scratch.ratio = self.size / max(1, compressed)
        return memoryview(self.buffer)[: self.size]
