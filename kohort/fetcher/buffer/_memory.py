"""The limit of bytes in responses that one consumer may keep: ``buffer_memory``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from kohort.types import NamedTuple


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

    @property
    def left(self) -> int:
        """The bytes that are neither used nor reserved. Negative if the limit is exceeded."""
        return self._limit - self.used - self.in_flight_bytes

    def grant(self, sizes: Collection[int], most: int, sharers: int) -> Grant:
        """Reserve bytes for a fetch of partitions with these ``sizes``, up to ``most`` in all.

        ``sharers`` brokers share the bytes that are left. The largest size is always granted, so
        that one partition can be fetched.
        """
        return self.grant_counted(Counter(sizes), most, sharers)

    def grant_counted(self, sizes: Mapping[int, int], most: int, sharers: int) -> Grant:
        """Reserve bytes by the rules of grant(). ``sizes`` counts the partitions of each size."""
        wanted = min(most, sum([size * count for size, count in sizes.items()]))
        left = self.left // sharers
        size = max(min(wanted, left), min(wanted, max(sizes)))
        self.in_flight_bytes += size
        return Grant(size, most if size == wanted else size)

    def release_grant(self, granted: Grant) -> None:
        """Free the reserved bytes of a fetch that has ended."""
        self.in_flight_bytes -= granted.size

    def count(self, response: Releasable, size: int) -> SharedLease:
        """Count a pooled response until the returned lease and all its shares are released."""
        with self._lock:
            self.pooled_bytes += size
        return SharedLease(self, response, size, [1])


class SharedLease:
    """A lease of a pooled response, of its receiver or of one partition.

    The last release returns the buffer to its pool. Any thread may release a lease, and a second
    release of the same one does nothing.

    Ctrl-C may come in any call of a release, which its owner then repeats (see
    consumer/driver/_delivery). So the state of the lease and the counts change in one run of
    statements. A buffer that does not return to its pool after that is garbage.
    """

    __slots__ = ("_is_held", "_memory", "_response", "_shares", "_size")

    def __init__(
        self, memory: FetchMemory, response: Releasable, size: int, shares: list[int]
    ) -> None:
        """``shares`` has the number of leases of the response, which all of them refer to."""
        self._memory = memory
        self._response = response
        self._size = size
        self._shares = shares
        self._is_held = True

    def share(self) -> SharedLease:
        """Return another lease of the response. This one must not be released yet."""
        assert self._is_held
        memory, shares = self._memory, self._shares
        with memory._lock:
            shares[0] += 1
        return SharedLease(memory, self._response, self._size, shares)

    def release(self) -> None:
        memory, shares = self._memory, self._shares
        is_last = False
        with memory._lock:
            if self._is_held:
                self._is_held = False
                shares[0] -= 1
                if not shares[0]:
                    memory.pooled_bytes -= self._size
                    is_last = True
        if is_last:
            self._response.release()
