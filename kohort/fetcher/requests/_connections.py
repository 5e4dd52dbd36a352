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

A partition that is behind has records at the broker, so its fetch returns at once. When it has room
while the main connection fetches partitions at their ends only, the extra connection fetches it
without delay. So one partition with a backlog does not wait for many without. A broker may have no
records below its watermark, so an empty response ends this, and a failed connection does for a
while.

Records end a long poll at once, so its length costs no latency. Each fetch costs CPU time. While no
value of ``fetch_max_wait_ms`` is given, the long poll of the main connection is 0.5 s at first. It
doubles up to 10 s each time it ends without news, which are records, errors and new watermarks. The
first news, a failure and a fetch over the extra connection make it 0.5 s again. The extra
connection's long polls take at most 0.1 s while the main one is longer than 0.5 s. So a second
change never waits longer than before.

A distant broker has parallel connections, too, while partitions are behind. See ``_parallel``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kohort.config import FetchConfig
from kohort.fetcher.buffer._completed import CompletedFetch
from kohort.fetcher.requests._parallel import RETRY_SECONDS, ParallelPolicy, needed_of
from kohort.fetcher.requests._request import FetchResult, PartitionRequest
from kohort.fetcher.requests._sessions import FetchSession
from kohort.types import NamedTuple, TopicPartition

LONG_POLL_AFTER = 0.02
"""Seconds before a fetch counts as a long poll. A younger fetch is probably about to return."""
MAIN_PURPOSE = "fetch"
"""Purpose of the main connection."""
EXTRA_POLL_MARGIN = 0.05
"""Seconds by which the extra connection's long poll ends before the main connection's."""
USUAL_POLL = 0.5
LONGEST_POLL = 10.0
"""Seconds of a long poll without news. A connection that was cut off is noticed only after it."""
EXTRA_POLL_LIMIT = 0.1


class LongPolls(NamedTuple):
    """Seconds of the main connection's long poll, and of the longest one without news."""

    usual: float
    longest: float

    @classmethod
    def of(cls, config: FetchConfig) -> LongPolls:
        """Return the value of ``fetch_max_wait_ms``, or else a range below the request timeout.

        A broker that waits for ``fetch_min_bytes`` delays records, so those long polls do not grow.
        """
        if config.fetch_max_wait_ms is not None:
            given = config.fetch_max_wait_ms / 1000
            return cls(given, given)
        limit = config.request_timeout_ms / 2000
        usual = min(USUAL_POLL, limit)
        return cls(usual, usual if config.fetch_min_bytes > 1 else min(LONGEST_POLL, limit))


class FetchConnection:
    """A connection to a broker with one fetch session and at most one fetch in flight."""

    __slots__ = (
        "has_delivered",
        "is_busy",
        "node",
        "paced_until",
        "purpose",
        "sent_at",
        "session",
        "until",
    )

    def __init__(self, node: int, purpose: str, session: FetchSession) -> None:
        self.node = node
        self.purpose = purpose
        self.session = session
        self.is_busy = False
        self.has_delivered = False
        """True after the first records."""
        self.sent_at = 0.0
        self.until = 0.0
        self.paced_until = 0.0
        """The time before which no fetch is sent without a new partition (see ``_pacing``)."""

    @property
    def long_poll(self) -> float:
        """The seconds that the broker may delay the latest fetch."""
        return self.until - self.sent_at

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
    """The main, the extra and the parallel connections to one broker."""

    def __init__(self, node: int, *, sessions: bool = True) -> None:
        self.node = node
        self.main = FetchConnection(node, MAIN_PURPOSE, FetchSession(enabled=sessions))
        self.extra = FetchConnection(node, "fetch-side", FetchSession(enabled=sessions))
        self.not_before = 0.0
        """The earliest time for a fetch, after a failed fetch or a throttle time."""
        self.policy: ParallelPolicy = ParallelPolicy()
        self.parallel: list[FetchConnection] = []
        self.behind: dict[TopicPartition, int] = {}
        """The partitions that are behind, with their epochs."""
        self._short_poll = self._extra_poll = LONG_POLL_AFTER
        self._idle_poll = 0.0
        self._extra_retry_at = 0.0

    @property
    def all(self) -> tuple[FetchConnection, ...]:
        return self.main, self.extra, *self.parallel

    @property
    def is_busy(self) -> bool:
        """True if a fetch is in flight over one of them."""
        return any(connection.is_busy for connection in self.all)

    @property
    def is_parallel(self) -> bool:
        """True if partitions that are behind are fetched over parallel connections."""
        return self.policy.connections > 1 or self.has_parallel_fetch

    @property
    def has_parallel_fetch(self) -> bool:
        """True if a fetch is in flight over a parallel connection."""
        return any(connection.is_busy for connection in self.parallel)

    @property
    def is_opening(self) -> bool:
        """True until the first records over a parallel connection."""
        return self.is_parallel and not any(each.has_delivered for each in self.parallel)

    def note_behind(self, results: Iterable[FetchResult], *, committed: bool) -> None:
        """Note which partitions are behind by the results of a response.

        ``committed``: records are read up to the last stable offset only.
        """
        for result in results:
            if isinstance(result, CompletedFetch):
                marks = result.watermarks
                end = marks.last_stable_offset if committed else marks.high_watermark
                if result.next_offset < end:
                    self.behind[result.topic_partition] = result.epoch
                else:
                    self.behind.pop(result.topic_partition, None)

    def note_empty(self, connection: FetchConnection) -> None:
        """Note that a response over this connection had nothing, whatever the watermarks say."""
        requests = connection.session.requests
        for tp, epoch in list(self.behind.items()):
            if (known := requests.get(tp)) is not None and known.epoch == epoch:
                del self.behind[tp]

    def requests_behind(
        self, ready: Mapping[TopicPartition, PartitionRequest]
    ) -> Iterator[PartitionRequest]:
        """Yield the requests of the partitions that are behind, in flight or not."""
        for tp, epoch in self.behind.items():
            if (request := ready.get(tp)) is not None and request.epoch == epoch:
                yield request

    def free_parallel(self, now: float) -> list[FetchConnection]:
        """Return the free parallel connections, up to the number that the policy allows."""
        while len(self.parallel) < self.policy.connections - 1:
            used = {connection.purpose for connection in self.parallel}
            number = next(n for n in range(1, len(used) + 2) if f"fetch-{n}" not in used)
            connection = FetchConnection(self.node, f"fetch-{number}", FetchSession(enabled=False))
            connection.sent_at = now  # otherwise it would be idle before its first fetch
            self.parallel.append(connection)
        allowed = self.parallel[: self.policy.connections - 1]
        return [connection for connection in allowed if not connection.is_busy]

    def remove_idle(self, now: float) -> list[FetchConnection]:
        """Remove the parallel connections that are no longer needed, and return them."""
        latest = [float("inf") if each.is_busy else each.sent_at for each in self.parallel]
        needed = needed_of(latest, now)
        removed, self.parallel[needed:] = self.parallel[needed:], []
        if not self.parallel and (removed or not self.behind):
            self.policy.reset()
        return removed

    def note_parallel_failure(self, connection: FetchConnection, now: float) -> bool:
        """Remove a parallel connection that failed. Return False if it is another one."""
        if connection not in self.parallel:
            return False
        self.parallel.remove(connection)
        self.policy.note_failure(now, 1 + len(self.parallel))
        return True

    def note_extra_failure(self, now: float) -> None:
        """Let no backlog depend on the extra connection for a while, because it failed."""
        self._extra_retry_at = now + RETRY_SECONDS

    def note_records(self, connection: FetchConnection) -> None:
        """Note that a response over this connection had records."""
        self._short_poll = LONG_POLL_AFTER
        connection.has_delivered = True
        if connection is self.extra:
            self._extra_poll, self._extra_retry_at = LONG_POLL_AFTER, 0.0

    def note_news(self) -> None:
        """Let the next long poll be a usual one, because records may follow."""
        self._idle_poll = 0.0

    def note_idle(self, connection: FetchConnection, longest: float) -> None:
        """Note that a long poll ended without news, so that the next one takes twice as long."""
        if connection is self.main:
            self._idle_poll = min(2 * connection.long_poll, longest)

    def is_extra_free(self, now: float) -> bool:
        """True if only the main connection prevents a fetch over the extra connection."""
        return (
            self.main.is_busy
            and not self.extra.is_busy
            and not self.is_parallel
            and max(self.not_before, self.extra.paced_until, self._extra_retry_at) <= now
        )

    def choose_extra(self, usual: float) -> ConnectionChoice:
        """Choose the extra connection for partitions that are behind.

        Its long poll is short, because the broker may have none of their records after all.
        """
        self.note_news()
        self._extra_poll = LONG_POLL_AFTER
        return ConnectionChoice(self.extra, min(LONG_POLL_AFTER, usual))

    def is_paced(self, now: float) -> bool:
        """True if a connection waits for the pace of its fetches."""
        return self.main.paced_until > now or self.extra.paced_until > now

    def choose(
        self, now: float, max_wait: float, *, has_waiting: bool = False, has_new: bool = False
    ) -> ConnectionChoice:
        """Choose a connection for a fetch, with a usual long poll of ``max_wait`` seconds.

        With ``has_waiting``, partitions wait for room. With ``has_new``, a new partition ends the
        pause of a connection.
        """
        main_wait = (
            min(max_wait, self._short_poll) if has_waiting else max(max_wait, self._idle_poll)
        )
        choice = self._choose(now, main_wait, max_wait)
        if choice.connection is not None and choice.connection.paced_until > now and not has_new:
            return ConnectionChoice(None, retry_at=choice.connection.paced_until)
        longest = max(max_wait, LONG_POLL_AFTER)
        if has_waiting and choice.connection is not None:
            self._short_poll = min(2 * self._short_poll, longest)
        if choice.connection is self.extra:
            self.note_news()
            self._extra_poll = min(2 * self._extra_poll, longest)
        return choice

    def _choose(self, now: float, main_wait: float, usual: float) -> ConnectionChoice:
        if self.not_before > now:
            return ConnectionChoice(None, retry_at=self.not_before)
        if not self.main.is_busy:
            return ConnectionChoice(self.main, main_wait)
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
        extra_wait = min(main_wait, left, self._extra_poll)
        if self.main.long_poll > usual:
            extra_wait = min(extra_wait, EXTRA_POLL_LIMIT)
        if extra_wait < 0.001:
            return ConnectionChoice(None, retry_at=overdue_at)
        return ConnectionChoice(self.extra, extra_wait)
