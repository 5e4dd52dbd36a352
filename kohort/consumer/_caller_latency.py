"""The order of two things after records came: the caller reads them, and the next fetch is sent."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORT_LATENCY_SECONDS = 0.001
"""A caller that is back in poll() so soon gets its next records before the next fetch is sent."""

WAKE_SECONDS = 0.0001
"""Time in which a thread wakes up and takes the interpreter's lock."""
CONTENDED_SECONDS = 0.001
"""A release of the interpreter's lock that takes so long met a CPU-bound thread."""
CONTENDED_PAUSE_SECONDS = 1.0


class LockRelease:
    """Releases of the interpreter's lock, so that a notified thread runs at once.

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
        """Release the lock for ``WAKE_SECONDS``, unless that took too long a moment ago."""
        began = self._clock()
        if began < self._not_before:
            return
        self._sleep(WAKE_SECONDS)
        ended = self._clock()
        if ended - began >= CONTENDED_SECONDS:
            self._not_before = ended + CONTENDED_PAUSE_SECONDS


class CallerLatency:
    """The time from the moment that a waiting caller is notified to its next poll().

    To send a fetch takes 0.2 to 0.4 ms of the consumer's time. A caller that comes back sooner than
    ``QUICK_SECONDS`` loses nothing if it is sent afterwards. For a slower one the fetch goes first,
    so that the broker answers while the caller processes its records.
    """

    __slots__ = ("_notified_at", "is_short")

    def __init__(self) -> None:
        self._notified_at: float | None = None
        self.is_short = True
        """True if the caller came back within ``QUICK_SECONDS`` the last time."""

    def note_notification(self, now: float) -> None:
        """A caller that waits was notified of records; called by the core."""
        self._notified_at = now

    def note_poll(self, now: float) -> None:
        """The caller is in poll() again; called on its thread."""
        since, self._notified_at = self._notified_at, None
        if since is not None:
            self.is_short = now - since < SHORT_LATENCY_SECONDS
