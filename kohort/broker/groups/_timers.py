"""Deadlines by key, for state machines without a clock."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """One deadline for each key, in seconds of the caller's clock; setting a key again moves it."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0

    def schedule(self, key: K, deadline: float) -> None:
        self._serial += 1
        self._deadlines[key] = deadline, self._serial
        heapq.heappush(self._heap, (deadline, self._serial, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._compact()

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline(self, key: K) -> float | None:
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, None if nothing is scheduled."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Yield the keys whose deadline has passed, earliest first, also those set meanwhile."""
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                return
            key = heapq.heappop(self._heap)[2]
            del self._deadlines[key]
            yield key

    def _drop_stale(self) -> None:
        heap = self._heap
        while heap:
            deadline, serial, key = heap[0]
            if self._deadlines.get(key) == (deadline, serial):
                return
            heapq.heappop(heap)

    def _compact(self) -> None:
        self._heap = [(at, serial, key) for key, (at, serial) in self._deadlines.items()]
        heapq.heapify(self._heap)
