"""A lease of one pooled buffer, shared by the partitions whose bytes are in it."""

from __future__ import annotations

import threading
from typing import Protocol


class Releasable(Protocol):
    """A resource to release after its last use."""

    def release(self) -> None: ...


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
