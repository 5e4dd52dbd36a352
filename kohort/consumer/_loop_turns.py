"""Turns that an asynchronous consumer gives the event loop while it has records to return."""

from __future__ import annotations

TURN_SECONDS = 0.01
"""Seconds of the loop's clock between two turns that reading gives to the event loop.

A timer that is due runs one turn after the turn that finds it due. So a time-out is late by two of
these at most. One turn costs about 20 us."""
GROWTH = 10
"""Factor by which one drain may be larger than the one before."""


class DrainSize:
    """Number of records to deserialize at once, so that it takes :data:`TURN_SECONDS` at most.

    ``most``: the upper bound. Without deserializers (``measured=False``) it is always that.
    """

    __slots__ = ("_measured", "count", "most")

    def __init__(self, most: int, *, measured: bool) -> None:
        self._measured = measured
        self.most = most
        self.count = 1 if measured else most

    def took(self, count: int, seconds: float) -> None:
        """Note how long a drain of ``count`` records took."""
        if count and self._measured:
            fitting = int(count * TURN_SECONDS / max(seconds, 1e-9))
            self.count = max(1, min(fitting, GROWTH * self.count, self.most))
