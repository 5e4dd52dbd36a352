"""The limit of bytes in responses that one consumer may keep: ``buffer_memory``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class Releasable(Protocol):
    """A resource to release after its last use."""

    def release(self) -> None: ...


class Grant(NamedTuple):
    """The bytes reserved for one fetch, and its ``max_bytes``, reduced only if memory is short."""

    size: int
    max_bytes: int


class FetchMemory:
    """The bytes in buffers and in flight, and the bytes that a further fetch may return.

    A pooled buffer counts with the whole response until its last lease is released, because it is
    freed only as a whole. The batches of a partition count until their records are delivered. The
    batches of small responses are copied, and only the copies count. Any thread may release a
    lease.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.pooled_bytes: int = 0
        """Bytes of responses in pooled buffers that are not released."""
        self.buffered_bytes = 0
        """Bytes of batches whose records are not delivered. The buffer updates the value."""
        self.in_flight_bytes: int = 0
        """Bytes that the fetches in flight may return."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def is_full(self) -> bool:
        """True if only partitions that the caller waits for may be fetched."""
        return self.used >= self._limit

    @property
    def used(self) -> int:
        """The larger one of the pooled and the buffered bytes."""
        return max(self.pooled_bytes, self.buffered_bytes)

    def grant(self, sizes: Collection[int], most: int, sharers: int) -> Grant:
        """Reserve bytes for a fetch of partitions with these ``sizes``, up to ``most`` in all.

        ``sharers`` brokers share the bytes that are left. The largest size is always granted, so
        that one partition can be fetched.
        """
        return self.grant_counted(Counter(sizes), most, sharers)

    def grant_counted(self, sizes: Mapping[int, int], most: int, sharers: int) -> Grant:
        """Reserve bytes by the rules of grant(). ``sizes`` counts the partitions of each size."""
        wanted = min(most, sum([size * count for size, count in sizes.items()]))
        left = (self._limit - self.used - self.in_flight_bytes) // sharers
        size = max(min(wanted, left), min(wanted, max(sizes)))
        self.in_flight_bytes += size
        return Grant(size, most if size == wanted else size)

    def release_grant(self, granted: Grant) -> None:
        """Free the reserved bytes of a fetch that has ended."""
        self.in_flight_bytes -= granted.size

    def count(self, lease: Releasable, size: int) -> Releasable:
        """Count a response until its lease is released."""
        with self._lock:
            self.pooled_bytes += size
        return _CountedLease(self, lease, size)

    def _release(self, size: int) -> None:
        with self._lock:
            self.pooled_bytes -= size


class _CountedLease:
    """The counted lease of a response. SharedLease releases it once."""

    __slots__ = ("_lease", "_memory", "_size")

    def __init__(self, memory: FetchMemory, lease: Releasable, size: int) -> None:
        self._memory = memory
        self._lease = lease
        self._size = size

    def release(self) -> None:
        self._lease.release()
        self._memory._release(self._size)


class SharedLease:
    """A lease that is released with the last of its shares, from any thread."""

    def __init__(self, lease: Releasable) -> None:
        self._lease = lease
        self._lock = threading.Lock()
        self._shares = 1

    def share(self) -> Share:
        """Return another share. The creator of the lease must still have the first share."""
        with self._lock:
            self._shares += 1
        return Share(self)

    def release(self) -> None:
        """Release the share of the creator."""
        with self._lock:
            self._shares -= 1
            last = self._shares == 0
        if last:
            self._lease.release()


class Share:
    """The share of one partition. A second release does nothing."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedLease) -> None:
        self._shared: SharedLease | None = shared

    def release(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.release()
