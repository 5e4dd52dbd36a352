"""The driver's side of a stream in a group: what the next micro-batch is, and what is done with.

All of it runs in the one thread in which Spark calls the reader; the group is the affair of the
member's thread. Nothing in here waits for a broker, but for the first assignment and for the end
of an AvailableNow query, and for these not for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kohort import KafkaTimeoutError, TopicPartition
from kohort.spark_connector._batch_limits import Patience, limited
from kohort.spark_connector._loss import LossCheck, next_ids, was_recreated
from kohort.spark_connector._member import END_S, GroupMember
from kohort.spark_connector._member_partitions import Held
from kohort.spark_connector._offsets import StreamOffset, new_query
from kohort.spark_connector._options import MAX_POLL_INTERVAL_MS, SourceOptions
from kohort.spark_connector._shutdown import leave_on_sigterm

logger = logging.getLogger("kohort.spark_connector")

FIRST_ASSIGNMENT_S = 10.0
"""The first batch is made in any case: it waits so long to be of use."""
SETTLE_S = 10.0
"""How much longer AvailableNow waits than others may take to give up partitions, or to rejoin."""
FINAL_COMMIT_S = 5.0
NEWS_S = 1.0
"""How long nothing new is made sure of, if the brokers do not answer."""

Offsets = dict[TopicPartition, int]


class GroupDriver:
    """Plans micro-batches of what the member holds; lives as long as the query runs."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._member = GroupMember(options, clock)
        self._holdings = self._member.holdings
        self._restore = leave_on_sigterm(self._member)
        self._settle_s = options.rebalance_wait_s + SETTLE_S
        # The member's thread is made with these properties, so this is a number by now.
        limit_ms = options.properties.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
        self._join_s = int(limit_ms) / 1000 + SETTLE_S
        self._patience = Patience(options, clock)
        self._loss = LossCheck(options)
        self._target: Offsets | None = None
        self._waited = False
        self._query = new_query()
        self._planned: StreamOffset | None = None
        self._had: set[TopicPartition] = set()
        """The partitions that the planned batch could read."""
        self._read: set[TopicPartition] = set()
        """What this run has read of, so that a reset of the group's offsets is an old one."""

    def prepare_available_now(self) -> None:
        """Let the stream end where the partitions end now that are this member's then."""
        holdings = self._holdings
        if not holdings.wait(lambda: holdings.settled, self._join_s):
            holdings.check()
            raise KafkaTimeoutError(
                f"group {self._options.group_id} was not joined within {self._join_s:g} s: is "
                "there a member that does not take part in the rebalance?"
            )
        if not holdings.wait(lambda: holdings.settled and holdings.has_partitions, self._settle_s):
            holdings.check()
            logger.warning("group %s gives this query no partitions", self._options.group_id)
        asked = holdings.ask_for_ends(urgent=True)
        if not holdings.wait(
            lambda: holdings.ends_answered >= asked or not holdings.there, self._settle_s
        ):
            self._give_up("the ends of its partitions did not come")
        with holdings.changed:
            self._target = dict(holdings.ends)

    def next_offset(
        self, start: StreamOffset, max_rows: int | None, *, at_once: bool = False
    ) -> StreamOffset:
        """The batch after ``start``, or ``start`` itself when there is nothing new.

        Being asked proves that the batch up to ``start`` is finished, so it is committed.
        ``at_once``: however little there is.
        """
        holdings = self._holdings
        asked = holdings.ask_for_ends()
        holdings.check()
        self._accept(start)  # revocations may go on
        if self._target is not None:
            if not holdings.wait(lambda: holdings.complete, self._join_s):
                self._give_up("its partitions were not handed out, or their starts not found")
        elif not self._waited:
            self._waited = True
            holdings.wait(lambda: holdings.complete and holdings.has_partitions, FIRST_ASSIGNMENT_S)
        found = self._next(start, max_rows, at_once)
        if found is not start or holdings.ending:
            return found
        if self._target is not None:
            holdings.wait(lambda: not holdings.done, FINAL_COMMIT_S)
            return start
        # What was written before the call is part of the answer: processAllAvailable() waits for
        # a query that says there is nothing new.
        version = holdings.version
        holdings.wait(lambda: holdings.ends_answered >= asked or holdings.version > version, NEWS_S)
        return self._next(start, max_rows, at_once)

    def _next(self, start: StreamOffset, max_rows: int | None, at_once: bool) -> StreamOffset:
        holdings = self._holdings
        holdings.check()
        with holdings.changed:
            self._accept(start)  # what came meanwhile may have to be committed, too
            found = self._plan(start, max_rows, at_once or self._target is not None)
            if found is not start:
                holdings.in_flight = {tp for tp, at in found.start.items() if found.end[tp] > at}
                self._planned = found
            return found

    def _give_up(self, what: str) -> None:
        """A run that is to read all there is must not end as if it had."""
        self._holdings.check()
        if not self._holdings.ending:
            last_error = self._holdings.last_error
            said = f": {last_error}" if last_error is not None else ""
            raise KafkaTimeoutError(f"group {self._options.group_id}: {what} in time{said}")

    def rest(self, start: StreamOffset) -> bool:
        """Whether all up to ``start`` is committed, if it can be; there is no batch after it."""
        self._holdings.check()
        self._accept(start)
        return self._holdings.wait(lambda: not self._holdings.done, FINAL_COMMIT_S)

    def latest(self) -> Offsets:
        """The ends of the partitions that this member has, as last seen."""
        with self._holdings.changed:
            return {tp: at for tp, at in self._holdings.ends.items() if tp in self._holdings.ready}

    def close(self) -> None:
        """Commit what is done, leave the group."""
        self._member.request_end()
        if not self._member.wait_ended(END_S):
            logger.warning("group %s was not left in time", self._options.group_id)
        self._restore()

    def _accept(self, start: StreamOffset) -> None:
        """All up to ``start`` is done: Spark has written so into its commit log."""
        holdings = self._holdings
        with holdings.changed:
            if holdings.fresh is None:
                holdings.query = start.query or self._query
                holdings.fresh = start.is_first
                holdings.changed.notify_all()
            if self._planned is not None and self._planned.end == start.end:
                self._read |= self._had
            void = was_recreated(start, holdings.ids)
            holdings.finish(
                {
                    tp: start.end[tp]
                    for tp, held in holdings.ready.items()
                    if tp in start.end
                    and tp.topic not in void
                    and self._position(tp, held, start) == start.end[tp] <= holdings.ends.get(tp, 0)
                }
            )

    def _position(self, tp: TopicPartition, held: Held, start: StreamOffset) -> int:
        """Where reading goes on: another member was further than this query, or the reverse."""
        done = start.end.get(tp, 0)
        if held.reset and self._options.group_offset_reset == "honor" and tp not in self._read:
            return held.start
        return max(done, held.start)

    def _plan(self, start: StreamOffset, max_rows: int | None, at_once: bool) -> StreamOffset:
        holdings = self._holdings
        positions = {tp: self._position(tp, h, start) for tp, h in holdings.usable().items()}
        void = self._loss.check(start, positions, holdings.ends, holdings.known, holdings.ids)
        for tp in void & holdings.ready.keys():
            # The group's offset is void as well.
            holdings.ready[tp] = holdings.ready[tp]._replace(start=0, reset=False)
        ends = {tp: self._end(tp, at) for tp, at in positions.items()}
        if holdings.ending:
            return start
        if not at_once and self._patience.waits(positions, ends):
            ends = positions
        elif max_rows is not None:
            ends = limited(positions, ends, max_rows)
        # Without partitions it has not begun, unless there are none: startingOffsets is for later.
        begins = start.is_first and (bool(ends) or holdings.has_no_partitions)
        if ends == positions and not begins:
            return start
        self._had = set(positions)
        # What others have is kept as an empty range, for the day it comes back.
        kept = {tp: at for tp, at in start.end.items() if tp not in positions and tp not in void}
        ids = next_ids(start, holdings.ids, {**ends, **kept})
        return StreamOffset(positions | kept, ends | kept, ids, start.query or self._query)

    def _end(self, tp: TopicPartition, position: int) -> int:
        end = self._holdings.ends.get(tp, position)
        if self._target is not None:
            end = min(end, self._target.get(tp, position))
        return max(end, position)
