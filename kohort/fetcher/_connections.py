"""The choice of the connection to a broker for the next fetch, and of the time to send it.

A broker delays a fetch without new records for up to ``fetch_max_wait_ms``. It serves the requests
of one connection strictly in order. A partition may become fetchable during such a long poll,
because it was assigned, sought or resumed, or its buffer was full. On the same connection it would
wait for partitions without records. Cancelling the fetch would close the connection. Therefore
each broker has two connections with at most one fetch in flight on each:

* The main connection fetches all partitions while it is free.
* The extra connection fetches partitions that became fetchable during a long poll of the main
  connection. It is opened when it is first needed. Its long polls are short: 20 ms at first,
  doubled after each fetch until one has records. The last one ends shortly before the one of the
  main connection, so that afterwards the main connection fetches all partitions again.

A newly fetchable partition therefore waits for 20 ms at most. If two such changes happen within
one ``fetch_max_wait_ms``, both connections are in a long poll. The wait of the second partition is
then at most 20 ms longer than the time since the first change or the records after it. So a few
requests follow each change, and an idle consumer sends none of them.

One such change is predictable. Partitions without room in the buffer have room again when the
caller drains it. They must not find both connections in long polls for partitions at their ends.
So while partitions wait for room, long polls are short: 20 ms at first, doubled after each fetch
until a response has records.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.fetcher._sessions import FetchSession

LONG_POLL_AFTER = 0.02
"""Seconds before a fetch counts as a long poll. A younger fetch is probably about to return."""
EXTRA_POLL_MARGIN = 0.05
"""Seconds by which the extra connection's long poll ends before the main connection's."""


class FetchConnection:
    """A connection to a broker with one fetch session and at most one fetch in flight."""

    __slots__ = ("is_busy", "node", "purpose", "sent_at", "session", "until")

    def __init__(self, node: int, purpose: str, session: FetchSession) -> None:
        self.node = node
        self.purpose = purpose
        self.session = session
        self.is_busy = False
        self.sent_at = 0.0
        self.until = 0.0

    def start(self, now: float, max_wait: float) -> None:
        """Note that a fetch is sent. The broker may delay it for ``max_wait`` seconds."""
        self.is_busy, self.sent_at, self.until = True, now, now + max_wait

    def finish(self) -> None:
        """Note that the fetch has returned or failed."""
        self.is_busy = False


class ConnectionChoice(NamedTuple):
    """The connection for a fetch and its long poll in seconds, or the time to choose again."""

    connection: FetchConnection | None
    max_wait: float = 0.0
    retry_at: float = float("inf")


class NodeConnections:
    """The main and the extra connection to one broker."""

    def __init__(self, node: int, *, sessions: bool = True) -> None:
        self.node = node
        self.main = FetchConnection(node, "fetch", FetchSession(enabled=sessions))
        self.extra = FetchConnection(node, "fetch-side", FetchSession(enabled=sessions))
        self.not_before = 0.0
        """The earliest time for a fetch, after a failed fetch or a throttle time."""
        self._short_poll = self._extra_poll = LONG_POLL_AFTER

    @property
    def both(self) -> tuple[FetchConnection, FetchConnection]:
        return self.main, self.extra

    def note_records(self, connection: FetchConnection) -> None:
        """Note that a response over this connection had records."""
        self._short_poll = LONG_POLL_AFTER
        if connection is self.extra:
            self._extra_poll = LONG_POLL_AFTER

    def choose(self, now: float, max_wait: float, *, has_waiting: bool = False) -> ConnectionChoice:
        """Choose a connection for a fetch. With ``has_waiting``, partitions wait for room."""
        choice = self._choose(now, min(max_wait, self._short_poll) if has_waiting else max_wait)
        longest = max(max_wait, LONG_POLL_AFTER)
        if has_waiting and choice.connection is not None:
            self._short_poll = min(2 * self._short_poll, longest)
        if choice.connection is self.extra:
            self._extra_poll = min(2 * self._extra_poll, longest)
        return choice

    def _choose(self, now: float, max_wait: float) -> ConnectionChoice:
        if self.not_before > now:
            return ConnectionChoice(None, retry_at=self.not_before)
        if not self.main.is_busy:
            return ConnectionChoice(self.main, max_wait)
        if self.extra.is_busy:
            return ConnectionChoice(None)
        parked_at = self.main.sent_at + LONG_POLL_AFTER
        if now < parked_at:
            return ConnectionChoice(None, retry_at=parked_at)
        left = self.main.until - now - EXTRA_POLL_MARGIN
        overdue_at = self.main.until + LONG_POLL_AFTER
        if now >= overdue_at:
            left = LONG_POLL_AFTER  # the long poll is over, and the response takes long
        if self.extra.until <= self.main.sent_at:  # the first change during this long poll
            self._extra_poll = LONG_POLL_AFTER
        extra_wait = min(max_wait, left, self._extra_poll)
        if extra_wait < 0.001:
            return ConnectionChoice(None, retry_at=overdue_at)
        return ConnectionChoice(self.extra, extra_wait)
