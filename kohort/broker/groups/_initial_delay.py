"""Delay of the first rebalance of an empty group."""

from __future__ import annotations


class InitialDelay:
    """Delay before the first generation, which each new member prolongs.

    ``delay_ms`` is ``group.initial.rebalance.delay.ms``. All delays together are at most
    ``limit_ms``, unless the first one is longer.
    """

    def __init__(self, delay_ms: int, limit_ms: int) -> None:
        self._longest_ms = self._current_ms = delay_ms
        self._remaining_ms = max(limit_ms - delay_ms, 0)
        self._has_new_member = False

    def note_member(self) -> None:
        """Record that a member has joined during the current delay."""
        self._has_new_member = True

    def prolong(self) -> int | None:
        """Return the next delay in ms, or None if no member has joined or no time remains."""
        if not (self._has_new_member and self._remaining_ms):
            return None
        self._has_new_member = False
        delay = min(self._longest_ms, self._remaining_ms)
        self._remaining_ms = max(self._remaining_ms - self._current_ms, 0)
        self._current_ms = delay
        return delay
