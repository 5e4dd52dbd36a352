"""A stretch of a log: one buffer that batches are copied into once and sliced out of for ever."""

from __future__ import annotations

from bisect import bisect_left

from kohort.records import BatchHeader

FIRST_CAPACITY = 1 << 16
LARGEST_CAPACITY = 1 << 24


class Segment:
    """Batches one after the other, so that a fetch of many is one slice and no copy.

    The buffer never grows, as slices of it are out in answers.
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
        """Position behind each batch."""
        self.max_timestamps: list[int] = []
        """The largest timestamp up to and in each batch of the segment."""

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def is_large(self) -> bool:
        """Whether segments grow no more."""
        return self.capacity >= LARGEST_CAPACITY

    @property
    def size(self) -> int:
        """Bytes written."""
        return self.ends[-1] if self.ends else 0

    def has_room(self, size: int) -> bool:
        return not self._sealed and self.size + size <= len(self._buffer)

    def truncate(self, offset: int) -> None:
        """Drop the batches from the offset on; nothing is written here again."""
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
        """The first batch that ends at or behind the offset; may be one too many."""
        return bisect_left(self.last_offsets, offset)

    def read(self, index: int, max_bytes: int) -> memoryview:
        """The bytes from a batch on, at most so many."""
        start = self.start_of(index)
        return self._view[start : min(start + max_bytes, self.size)]

    def size_of(self, index: int) -> int:
        """Bytes of one batch."""
        return self.ends[index] - self.start_of(index)

    def batch(self, index: int) -> memoryview:
        return self._view[self.start_of(index) : self.ends[index]]
