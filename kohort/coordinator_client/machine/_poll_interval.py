"""The limit of the time between two calls of poll()."""

from __future__ import annotations

from kohort.logs import get_logger

logger = get_logger(__name__)

SHARE_OF_WARNING = 0.8
"""Fraction of ``max_poll_interval_ms`` without a poll() after which a warning is logged."""


class PollInterval:
    """The time since the caller's latest poll(). ``longest`` is the limit in seconds."""

    def __init__(self, group_id: str, longest: float) -> None:
        self.last_poll = 0.0
        self._group_id = group_id
        self._longest = longest
        self._has_warned = False

    def note_poll(self, last_poll: float) -> None:
        if last_poll > self.last_poll:
            self.last_poll, self._has_warned = last_poll, False

    def deadline(self) -> float:
        """Return the time of the warning, or of the end of the interval after the warning."""
        share = 1.0 if self._has_warned else SHARE_OF_WARNING
        return self.last_poll + share * self._longest

    def check(self, now: float) -> str | None:
        """Log a warning when it is due. Return the reason to leave the group, or None."""
        spent, limit = now - self.last_poll, self._longest
        if now >= self.last_poll + limit:
            logger.warning(
                "[%s] leaving the group: poll() was not called for %.1f s, longer than "
                "max_poll_interval_ms %d. Set a lower max_poll_records or raise "
                "max_poll_interval_ms",
                self._group_id,
                spent,
                round(limit * 1000),
            )
            return f"poll() was not called for {spent:.1f} s"
        if not self._has_warned and now >= self.last_poll + SHARE_OF_WARNING * limit:
            self._has_warned = True
            logger.warning(
                "[%s] poll() was not called for %.1f s. After max_poll_interval_ms (%d), this "
                "consumer leaves its group",
                self._group_id,
                spent,
                round(limit * 1000),
            )
        return None
