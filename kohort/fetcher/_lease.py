"""One pooled buffer, shared by the partitions whose bytes are in it."""

from __future__ import annotations

import threading
from typing import Protocol


class Releasable(Protocol):
    """Something that is given back when nobody looks at it any more."""

    def release(self) -> None: ...


class SharedLease:
    """Releases a lease when all of its shares are released; from any thread."""

    def __init__(self, lease: Releasable) -> None:
        self._lease = lease
        self._lock = threading.Lock()
        self._shares = 1

    def share(self) -> Share:
        """A further share. Taken while the one that made the lease is still open."""
        with self._lock:
            self._shares += 1
        return Share(self)

    def release(self) -> None:
        """Give up one share."""
        with self._lock:
            self._shares -= 1
            last = self._shares == 0
        if last:
            self._lease.release()


class Share:
    """One partition's share; releasing it twice is the same as once."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedLease) -> None:
        self._shared: SharedLease | None = shared

    def release(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.release()
