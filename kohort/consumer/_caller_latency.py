"""The choice of what comes first after a fetch response: the caller's poll() or the next fetch."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORT_LATENCY_SECONDS = 0.001
"""A caller with a shorter latency gets its records before the next fetch is sent."""

WAKE_SECONDS = 0.0001
"""Seconds in which a thread wakes up and takes the interpreter's lock."""
CONTENDED_SECONDS = 0.001
"""A release of the interpreter's lock that takes longer has met a CPU-bound thread."""
CONTENDED_PAUSE_SECONDS = 1.0


class LockRelease:
    """Releases of the interpreter's lock, so that a notified thread runs immediately.

    A CPU-bound thread of the program keeps the lock for 5 ms each time. So after a release that
    took ``CONTENDED_SECONDS`` there is no other one for ``CONTENDED_PAUSE_SECONDS``.
    """

    __slots__ = ("_clock", "_not_before", "_sleep")

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._not_before = 0.0

    def release(self) -> None:
        """Release the lock for ``WAKE_SECONDS``, unless a recent release took too long."""
        began = self._clock()
        if began < self._not_before:
            return
        self._sleep(WAKE_SECONDS)
        ended = self._clock()
        if ended - began >= CONTENDED_SECONDS:
            self._not_before = ended + CONTENDED_PAUSE_SECONDS


class CallerLatency:
    """The time from the notification of a waiting caller to its next poll().

    Sending a fetch takes the consumer 0.2 to 0.4 ms. A caller with a latency below
    ``SHORT_LATENCY_SECONDS`` loses nothing if the fetch is sent afterwards. For a slower caller the
    fetch is sent first, so that the broker responds while the caller processes its records.
    """

    __slots__ = ("_notified_at", "is_short")

    def __init__(self) -> None:
        self._notified_at: float | None = None
        self.is_short = True
        """True if the latest latency was below ``SHORT_LATENCY_SECONDS``."""

    def note_notification(self, now: float) -> None:
        """Note that a waiting caller is notified of records. The engine calls this."""
        self._notified_at = now

    def note_poll(self, now: float) -> None:
        """Note that the caller enters poll(). It calls this on its thread."""
        since, self._notified_at = self._notified_at, None
        if since is not None:
            self.is_short = now - since < SHORT_LATENCY_SECONDS
