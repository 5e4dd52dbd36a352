"""The part of a broker's partitions that a fetch names while responses are full.

A broker looks at all partitions of a fetch, also at those of its session that the request does not
name. With 1,000 partitions that takes longer than reading the few whose records fill the response.
So while there is a backlog, a fetch names only as many partitions as fill two responses. It has no
session (epoch -1), and the broker does not delay it.

1. The candidates of a broker are in the order of their turns. One that becomes fetchable goes to
   the end.
2. A fetch names the first ones. A full response stops at some partition. Those up to it have had
   their turn and go to the end. The others stay, so they are the first ones of the next fetch.
3. A full response for which the broker looked at n partitions makes the working set 2 n. Any other
   one doubles it. If it exceeds half of the candidates, the next fetch is one of the session.
4. If few partitions have a backlog, working sets are not full, and cost requests. So after fewer
   than ``WORTHWHILE`` full responses, the next try comes after twice as many full responses of the
   session as the try before.

Invariants:

1. The fetch in flight over the main connection is of its attribute ``session``: the session of all
   partitions, or the working set. Beside a working set nothing else is fetched from the broker.
2. A partition of a working set counts as changed for the session of all partitions, whose next
   request then has its offset. A fetch of a working set changes nothing else of that session, here
   and at the broker.
3. Each response gives the first candidate its turn. So every candidate has its turn within as many
   responses as there are candidates. explain() has the time since the last one.
"""

from __future__ import annotations

WORTHWHILE = 8
MOST_SKIPPED = 256


class WorkingSet:
    """The number of partitions in the next fetches from one broker."""

    __slots__ = ("_full_responses", "_size", "_skipped", "_to_skip")

    def __init__(self) -> None:
        self._size = 0
        self._full_responses = 0
        self._skipped = 0
        self._to_skip = 1

    def size(self, candidates: int) -> int:
        """Return the number of partitions that a fetch names, or 0 for the session of all."""
        if 2 * self._size > candidates:
            self._end()
        return self._size

    def note_session(self, with_records: int, least: int) -> None:
        """Note a full response of the session, by the number of partitions with records.

        ``least`` partitions fill two responses if each of them has enough records.
        """
        if self._skipped:
            self._skipped -= 1
        elif not self._size:
            self._size, self._full_responses = max(2 * with_records, least), 0

    def note_response(self, examined: int, least: int, *, is_full: bool) -> None:
        """Note a response of a working set in which the broker looked at some partitions."""
        if not self._size:
            return  # of a fetch before the end
        if is_full:
            self._full_responses += 1
            self._size = max(2 * examined, least)
        else:
            self._size *= 2

    def _end(self) -> None:
        self._size = 0
        if self._full_responses >= WORTHWHILE:
            self._to_skip = 1
        else:
            self._skipped = self._to_skip
            self._to_skip = min(2 * self._to_skip, MOST_SKIPPED)
