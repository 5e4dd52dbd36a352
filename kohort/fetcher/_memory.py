"""How many bytes of answers one consumer may hold: ``buffer_memory``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kohort.fetcher._lease import Releasable


class Grant(NamedTuple):
    """What one fetch may bring, and its ``max_bytes``, which is only cut where it has to be."""

    size: int
    max_bytes: int


class FetchMemory:
    """Counts what is held and what was asked for, and says how much more a fetch may bring.

    An answer in a pooled buffer counts as a whole until nobody looks into it any more, because as a
    whole it keeps its buffer; one partition's part of it until its records are handed out. Of small
    answers each partition's part is a copy, and only that counts. Leases come back from any thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.pooled_bytes: int = 0
        """Bytes of answers in pooled buffers that are not released."""
        self.buffered_bytes = 0
        """Bytes of the batches whose records are not handed out; the buffer keeps it up to date."""
        self.in_flight_bytes: int = 0
        """Bytes that the fetches in flight may bring."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def is_full(self) -> bool:
        """Nothing is fetched that can wait."""
        return self.used >= self._limit

    @property
    def used(self) -> int:
        """Bytes that are in use, by whichever count is more."""
        return max(self.pooled_bytes, self.buffered_bytes)

    def grant(self, sizes: Collection[int], most: int, sharers: int) -> Grant:
        """What a fetch may bring of partitions of which ``sizes`` are asked for, ``most`` in all.

        What is left is shared with the other brokers that are to be asked: ``sharers`` together.
        One partition may be asked for in any case.
        """
        return self.grant_counted(Counter(sizes), most, sharers)

    def grant_counted(self, sizes: Mapping[int, int], most: int, sharers: int) -> Grant:
        """Do the same as grant(). ``sizes`` has the number of partitions for each size."""
        wanted = min(most, sum([size * count for size, count in sizes.items()]))
        left = (self._limit - self.used - self.in_flight_bytes) // sharers
        size = max(min(wanted, left), min(wanted, max(sizes)))
        self.in_flight_bytes += size
        return Grant(size, most if size == wanted else size)

    def release_grant(self, granted: Grant) -> None:
        """The fetch has ended."""
        self.in_flight_bytes -= granted.size

    def count(self, lease: Releasable, size: int) -> Releasable:
        """Count an answer until it is released."""
        with self._lock:
            self.pooled_bytes += size
        return _CountedLease(self, lease, size)

    def _release(self, size: int) -> None:
        with self._lock:
            self.pooled_bytes -= size


class _CountedLease:
    """An answer's lease; released once, by SharedLease."""

    __slots__ = ("_lease", "_memory", "_size")

    def __init__(self, memory: FetchMemory, lease: Releasable, size: int) -> None:
        self._memory = memory
        self._lease = lease
        self._size = size

    def release(self) -> None:
        self._lease.release()
        self._memory._release(self._size)
