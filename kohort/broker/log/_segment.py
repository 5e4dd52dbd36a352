"""A part of a log: one buffer of batches, which are copied into it once and read as slices."""

from __future__ import annotations

from bisect import bisect_left

from kohort.records import BatchHeader

FIRST_CAPACITY = 1 << 16
LARGEST_CAPACITY = 1 << 24


class Segment:
    """Consecutive batches in one buffer, so that a fetch of many batches is one slice without a
    copy.

    The buffer never grows, because responses have slices of it.
    """

    __slots__ = (
        "_buffer",
        "_sealed",
        "_view",
        "base_offsets",
        "ends",
        "last_offsets",
        "max_timestamps",
    )

    def __init__(self, capacity: int) -> None:
        self._buffer = bytearray(capacity)
        self._view = memoryview(self._buffer)
        self._sealed = False
        self.base_offsets: list[int] = []
        self.last_offsets: list[int] = []
        self.ends: list[int] = []
        """Position after each batch."""
        self.max_timestamps: list[int] = []
        """The largest timestamp of all batches up to each one."""

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def is_large(self) -> bool:
        """True if new segments have the same size."""
        return self.capacity >= LARGEST_CAPACITY

    @property
    def size(self) -> int:
        """Bytes written."""
        return self.ends[-1] if self.ends else 0

    def has_room(self, size: int) -> bool:
        return not self._sealed and self.size + size <= len(self._buffer)

    def truncate(self, offset: int) -> None:
        """Drop the batches from the offset on; the segment accepts no more batches."""
        self._sealed = True
        kept = bisect_left(self.base_offsets, offset)
        for column in (self.base_offsets, self.last_offsets, self.ends, self.max_timestamps):
            del column[kept:]

    def append(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        start = self.size
        end = start + len(batch)
        self._view[start:end] = batch
        self.base_offsets.append(header.base_offset)
        self.last_offsets.append(header.last_offset)
        self.ends.append(end)
        before = self.max_timestamps[-1] if self.max_timestamps else header.max_timestamp
        self.max_timestamps.append(max(before, header.max_timestamp))

    def start_of(self, index: int) -> int:
        return self.ends[index - 1] if index else 0

    def index_of(self, offset: int) -> int:
        """Return the first batch that ends at or after the offset; the index may be out of
        range.
        """
        return bisect_left(self.last_offsets, offset)

    def read(self, index: int, max_bytes: int) -> memoryview:
        """Return the bytes from a batch on, at most ``max_bytes``."""
        start = self.start_of(index)
        return self._view[start : min(start + max_bytes, self.size)]

    def size_of(self, index: int) -> int:
        """Return the bytes of one batch."""
        return self.ends[index] - self.start_of(index)

    def batch(self, index: int) -> memoryview:
        return self._view[self.start_of(index) : self.ends[index]]
