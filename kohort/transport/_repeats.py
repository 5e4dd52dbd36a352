"""RepeatedLog: a log that thins out repeated messages and counts them."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import anyio

FIRST_INTERVAL_S = 5.0
LONGEST_INTERVAL_S = 600.0


class _Repeat:
    __slots__ = ("interval", "left_out", "next_at", "text")

    def __init__(self, text: str, next_at: float, interval: float) -> None:
        self.text = text
        self.next_at = next_at
        self.interval = interval
        self.left_out = 0


class RepeatedLog:
    """A log of messages by key. It logs an equal message again only after an interval.

    The interval is 5 s and doubles, up to 10 minutes. The next message has the number of omitted
    ones.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[Hashable, _Repeat] = {}

    def log(self, key: Hashable, level: int, text: str, *, same: str | None = None) -> None:
        """Log a message about ``key``, unless it repeats the latest one.

        ``same`` is compared in place of the text, which may hold changing figures.
        """
        now = anyio.current_time()
        known = self._known.get(key)
        compared = text if same is None else same
        if known is None or known.text != compared:
            self._known[key] = _Repeat(compared, now + FIRST_INTERVAL_S, FIRST_INTERVAL_S)
            self._logger.log(level, "%s", text)
            return
        known.left_out += 1
        if now >= known.next_at:
            count = "once" if known.left_out == 1 else f"{known.left_out} times"
            self._logger.log(level, "%s (%s since the last line)", text, count)
            known.interval = min(known.interval * 2, LONGEST_INTERVAL_S)
            known.next_at = now + known.interval
            known.left_out = 0

    def ended(self, key: Hashable) -> None:
        """End the series of ``key``, so that its next message is logged at once."""
        self._known.pop(key, None)
