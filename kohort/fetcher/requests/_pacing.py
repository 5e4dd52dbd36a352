"""The pace of fetches while few records arrive at a time.

A fetch, its response and the poll that returns the records take some CPU time, whatever the number
of records. At 10,000 records a second, a consumer that fetches at once sends hundreds of fetches a
second, and each returns a few records. Therefore fetches have a least interval, by these rules:

1. A response is paced if it is small, has records, and the broker has no more of them.
2. After a paced response, the next fetch over the connection is sent one interval after the latest
   one was sent. So a record that comes after a silence is not delayed, because its fetch waits at
   the broker for longer than an interval.
3. The interval is ``WORK_FACTOR`` times the time that the event loop has worked on the latest
   response. So fetching takes about the same share of a core on each machine. ``fetch_pace_ms`` is
   its upper limit.
4. A partition that no fetch has requested yet at its present epoch ends the pause. It was assigned,
   sought or resumed, or it has another leader.
"""

from __future__ import annotations

from kohort.config import FetchConfig
from kohort.fetcher.buffer._completed import CompletedFetch
from kohort.fetcher.requests._connections import FetchConnection
from kohort.subscription import Watermarks

PACED_BYTES = 256 << 10
"""Bytes of a response from which its records cost more than the fetch."""
WORK_FACTOR = 80
"""Interval in multiples of the work on a response. The rest of a cycle takes twice as long again.

So the fetches take about a twenty-fifth of a core.
"""
LEAST_SHARE = 10
"""Part of ``fetch_pace_ms`` that the interval has at least."""


class FetchPace:
    """The intervals between the fetches of one consumer."""

    def __init__(self, config: FetchConfig) -> None:
        self._longest = config.fetch_pace_ms / 1000
        self._reads_committed = config.isolation_level == "read_committed"
        self.paced_responses: int = 0
        """Number of responses after which the next fetch has waited."""
        self.seconds: float = self._longest / LEAST_SHARE
        """The present interval."""

    def is_at_end(self, fetch: CompletedFetch) -> bool:
        """True if the broker had no more records of the partition when it responded."""
        watermarks: Watermarks = fetch.watermarks
        end = watermarks.high_watermark
        if self._reads_committed and 0 <= watermarks.last_stable_offset < end:
            end = watermarks.last_stable_offset
        return fetch.next_offset >= end

    def note_work(self, seconds: float) -> None:
        """Note the time that the event loop has worked on a response."""
        self.seconds = min(self._longest, max(self._longest / LEAST_SHARE, WORK_FACTOR * seconds))

    def holds(self, connection: FetchConnection, size: int, now: float) -> bool:
        """True if a response of ``size`` bytes, up to the end of its partitions, is paced now."""
        return size <= PACED_BYTES and now < connection.sent_at + self.seconds

    def hold(self, connection: FetchConnection) -> None:
        """Delay the next fetch over a connection, because its response is paced."""
        connection.paced_until = connection.sent_at + self.seconds
        self.paced_responses += 1
