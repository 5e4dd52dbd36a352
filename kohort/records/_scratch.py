"""Memory to decompress into, used again from batch to batch."""

from __future__ import annotations

from typing import Final

_GRAIN = 64 * 1024
_KEPT = 4 * 1024 * 1024
"""Bytes that stay for the next batch, whatever comes; most batches are far smaller."""
_PATIENCE = 16
_PLAUSIBLE_RATIO = 7
_PLAUSIBLE = 384 * 1024


class Scratch:
    """A buffer that grows with what is asked of it; for one thread.

    What :meth:`take` returns is valid until the next call. Fresh memory costs as much as filling it
    does, so up to 4 MiB are kept. More is kept only while batches go on needing it: the first such
    batch gets memory of its own, and after 16 smaller ones what was kept for larger ones goes.
    """

    __slots__ = ("_buffer", "_keeps_large", "_large", "ratio")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._large = 0  # how many batches from now on follow a large one closely
        self._keeps_large = False
        self.ratio: float = 0.0
        """How many times its size the latest batch became."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._buffer)

    def begin(self) -> None:
        """A batch begins; what the one before had is no longer needed."""
        self._keeps_large = self._large > 0
        if self._large:
            self._large -= 1
        elif len(self._buffer) > _KEPT:
            self._buffer = bytearray()

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes of any content; again in the same batch if that needs more."""
        if size > _KEPT:
            self._large = _PATIENCE
        if len(self._buffer) >= size:
            return self._buffer
        if size <= _KEPT:
            wanted = max(size, 2 * len(self._buffer))
            size = min(_KEPT, -(-wanted // _GRAIN) * _GRAIN)
        elif not self._keeps_large:
            return bytearray(size)
        self._buffer = bytearray()  # before the next one is made
        self._buffer = bytearray(size)
        return self._buffer

    def plausible(self, compressed: int, most: int) -> int:
        """As :meth:`Output.plausible`, whatever the budget."""
        if most <= _PLAUSIBLE:
            return most
        ratio = max(_PLAUSIBLE_RATIO, 1.5 * self.ratio)
        return min(most, int(ratio * compressed) + _PLAUSIBLE)

    def kept_view(self) -> memoryview:
        """What is kept, for a batch that this is enough for."""
        return memoryview(self._buffer)

    def release(self) -> None:
        """Keep nothing."""
        self._buffer = bytearray()
        self._large = 0


class Output:
    """What one batch decompresses to: room in a scratch, filled from its beginning."""

    __slots__ = ("_scratch", "budget", "buffer", "size")

    def __init__(self, scratch: Scratch, budget: int) -> None:
        scratch.begin()
        self._scratch: Final = scratch
        self.budget: Final = budget
        self.buffer = bytearray()
        self.size = 0
        """Bytes that are filled."""

    def reserve(self, size: int) -> memoryview:
        """The room behind what is filled, in a buffer of ``size`` bytes altogether."""
        if len(self.buffer) < size:
            before = self.buffer
            self.buffer = self._scratch.take(size)
            if self.size and before is not self.buffer:
                self.buffer[: self.size] = memoryview(before)[: self.size]
        return memoryview(self.buffer)[self.size : size]

    def add(self, data: bytes) -> None:
        """Append, doubling the room where there is not enough."""
        end = self.size + len(data)
        if end > len(self.buffer):
            self.reserve(min(max(end, 2 * len(self.buffer)), max(end, self.budget)))
        self.buffer[self.size : end] = data
        self.size = end

    def plausible(self, data: memoryview, most: int) -> int:
        """Bytes to make room for before it is known that ``data`` becomes as many as ``most``."""
        return min(self._scratch.plausible(len(data), most), self.budget)

    def finished(self, compressed: int) -> memoryview:
        """What is filled, which was so many bytes compressed."""
        self._scratch.ratio = self.size / max(1, compressed)
        return memoryview(self.buffer)[: self.size]
