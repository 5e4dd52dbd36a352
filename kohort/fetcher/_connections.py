"""Which connection to a broker the next fetch goes over, and when.

A broker keeps a fetch that finds nothing for ``fetch_max_wait_ms``, and it takes the requests of
one connection strictly in order. So a partition that becomes fetchable while a fetch is parked
(it was assigned, sought, resumed, or its buffer was full) would wait behind partitions that have
nothing to say. Cancelling would cost the connection. Instead there are two lanes to a broker, each
a connection with at most one fetch in flight:

* the main lane, which all partitions are fetched over as long as it is free;
* the side lane, opened the first time it is needed, for partitions that became fetchable while the
  main lane is parked. Its long poll ends shortly before the main lane's, so that afterwards all
  partitions meet on the main lane again.

A newly fetchable partition therefore waits for 20 ms at most, unless both lanes are parked (two
such changes within one ``fetch_max_wait_ms``): then for the rest of that time.

One such change is foreseen: where others have no room just now, they will have some as soon as the
caller takes what is there, and then must not find both lanes parked for partitions that are at
their ends. So nothing is parked for long beside them: at first for 20 ms, and for as long again as
nothing has come.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.fetcher._sessions import FetchSession

PARKED_AFTER = 0.02
"""Seconds. A fetch that is out for less is probably being answered: not worth a second one."""
MEET_MARGIN = 0.05
"""Seconds by which the side lane's long poll ends before the main lane's."""


class FetchConnection:
    """A connection to a broker, with at most one fetch in flight, and a session."""

    __slots__ = ("is_busy", "node", "purpose", "sent_at", "session", "until")

    def __init__(self, node: int, purpose: str, session: FetchSession) -> None:
        self.node = node
        self.purpose = purpose
        self.session = session
        self.is_busy = False
        self.sent_at = 0.0
        self.until = 0.0

    def start(self, now: float, max_wait: float) -> None:
        """A fetch goes out that the broker may keep for ``max_wait`` seconds."""
        self.is_busy, self.sent_at, self.until = True, now, now + max_wait

    def finish(self) -> None:
        """It was answered, or failed."""
        self.is_busy = False


class ConnectionChoice(NamedTuple):
    """The lane for a fetch and its long poll in seconds; without a lane, when to ask again."""

    connection: FetchConnection | None
    max_wait: float = 0.0
    retry_at: float = float("inf")


class NodeConnections:
    """The two lanes to one broker."""

    def __init__(self, node: int, *, sessions: bool = True) -> None:
        self.node = node
        self.main = FetchConnection(node, "fetch", FetchSession(enabled=sessions))
        self.extra = FetchConnection(node, "fetch-side", FetchSession(enabled=sessions))
        self.not_before = 0.0
        """Nothing is sent before this time: the last fetch failed, or the broker throttles."""
        self._short_poll = PARKED_AFTER

    @property
    def both(self) -> tuple[FetchConnection, FetchConnection]:
        return self.main, self.extra

    def note_records(self) -> None:
        """An answer has brought something."""
        self._short_poll = PARKED_AFTER

    def choose(self, now: float, max_wait: float, *, has_waiting: bool = False) -> ConnectionChoice:
        """Choose a connection for a fetch. With ``has_waiting`` more partitions wait for room."""
        choice = self._choose(now, min(max_wait, self._short_poll) if has_waiting else max_wait)
        if has_waiting and choice.connection is not None:
            self._short_poll = min(2 * self._short_poll, max(max_wait, PARKED_AFTER))
        return choice

    def _choose(self, now: float, max_wait: float) -> ConnectionChoice:
        if self.not_before > now:
            return ConnectionChoice(None, retry_at=self.not_before)
        if not self.main.is_busy:
            return ConnectionChoice(self.main, max_wait)
        if self.extra.is_busy:
            return ConnectionChoice(None)
        parked_at = self.main.sent_at + PARKED_AFTER
        if now < parked_at:
            return ConnectionChoice(None, retry_at=parked_at)
        left = self.main.until - now - MEET_MARGIN
        overdue_at = self.main.until + PARKED_AFTER
        if now >= overdue_at:
            left = PARKED_AFTER  # it is not parked any more: its answer takes long
        extra_wait = min(max_wait, left)
        if extra_wait < 0.001:
            return ConnectionChoice(None, retry_at=overdue_at)
        return ConnectionChoice(self.extra, extra_wait)
