"""Figures of a share consumer's requests."""

from __future__ import annotations

from kohort.consumer.engine._requests import Durations


class ShareStatistics:
    """Statistics of one share consumer. Only its engine writes them, any thread may read."""

    __slots__ = (
        "bytes_fetched",
        "failed_fetches",
        "fetches",
        "heartbeats",
        "last_failure",
        "last_heartbeat",
        "rebalances",
    )

    def __init__(self) -> None:
        self.fetches = Durations()
        """The fetches with a response, also those that failed as a whole."""
        self.failed_fetches = 0
        self.bytes_fetched = 0
        self.heartbeats = 0
        self.last_heartbeat: float | None = None
        """The time when the latest heartbeat with a response was sent."""
        self.rebalances = 0
        self.last_failure: str | None = None
        """The latest error of the membership."""
