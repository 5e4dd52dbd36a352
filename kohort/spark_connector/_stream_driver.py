"""The driver's side of a stream that is in no group: what the next micro-batch is.

All of it runs in the one thread in which Spark calls the reader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaError, OffsetsTimeoutError
from kohort.spark_connector._batch_limits import BatchDelay, limited_ends
from kohort.spark_connector._end_offsets import PARTITIONS_REFRESH_S, EndLookup, offsets_found
from kohort.spark_connector._loss import LossCheck, next_ids
from kohort.spark_connector._offsets import StreamOffset, new_query_id
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._planning import OffsetPlanner
from kohort.spark_connector._session import SparkFolders

logger = logging.getLogger("kohort.spark_connector")

ENDS_REFRESH_S = 0.1
"""An idle query asks for the next batch every 10 ms; the brokers are asked no more often."""
LOOK_UP_MS = 5_000
"""Partitions without a leader would be waited for as long as ``default.api.timeout.ms``."""


class StreamDriver:
    """Plans micro-batches of all partitions; lives as long as the query runs."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._planner = OffsetPlanner(consumer, options)
        self._lookup = EndLookup(self._planner, LOOK_UP_MS, clock, self._note_timeout)
        self._clock = clock
        self._sleep = sleep
        self._delay = BatchDelay(options, clock)
        self._loss = LossCheck(options)
        self._session = SparkFolders(clock)
        self._partitions: set[TopicPartition] = set()
        self._partitions_due = self._ends_due = self._refreshed_at = float("-inf")
        self._ends: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._has_planned = False
        self._query_id = new_query_id()
        self._starts: dict[TopicPartition, int] = {}  # of partitions that no batch has held yet

    def prepare_available_now(self) -> None:
        """Let the stream end where the partitions end now."""
        self._refresh(force=True)
        self._target = dict(self._ends)

    def next_offset(
        self, start: StreamOffset, max_rows: int | None, *, ignore_minimum: bool = False
    ) -> StreamOffset:
        """The batch after ``start``, or ``start`` itself when there is nothing new.

        ``ignore_minimum``: however little there is.
        """
        self._session.check()
        asked_at = self._clock()
        self._refresh()
        found = self._plan(start, max_rows, ignore_minimum)
        if found is start and self._target is None and self._refreshed_at < asked_at:
            # What was written before the call is part of the answer: processAllAvailable() waits
            # for a query that says there is nothing new.
            self._sleep(max(0.0, self._ends_due - asked_at))
            self._refresh()
            found = self._plan(start, max_rows, ignore_minimum)
        return found

    def _plan(
        self, start: StreamOffset, max_rows: int | None, ignore_minimum: bool
    ) -> StreamOffset:
        first = not self._has_planned and start.is_first
        if first and not self._options.fail_on_data_loss:
            self._planner.partitions(must_exist=True)  # a name that was mistyped
        self._has_planned = True
        positions, void = self._positions(start, first)
        ends = {tp: self._end(tp, at) for tp, at in positions.items()}
        if not (ignore_minimum or self._target is not None) and self._delay.should_wait(
            positions, ends
        ):
            ends = positions
        elif max_rows is not None:
            ends = limited_ends(positions, ends, max_rows)
        if ends == positions and not first:
            return start
        kept = {tp: at for tp, at in start.end.items() if tp not in positions and tp not in void}
        ids = next_ids(start, self._ids, {**ends, **kept})
        return StreamOffset(positions | kept, ends | kept, ids, start.query or self._query_id)

    def commit_up_to(self, start: StreamOffset) -> bool:
        """Whether all up to ``start`` is committed: there is nothing to commit."""
        return True

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """The ends of the partitions, as last seen."""
        return dict(self._ends)

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    # -- where partitions start and end -------------------------------------------------------

    def _positions(
        self, start: StreamOffset, first: bool
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Where partitions are read from, and those of which a loss has them start again."""
        new = self._partitions - start.end.keys() - self._starts.keys()
        if new and not (first or self._target is None):
            # What came up after the target was set is no part of this run.
            new &= self._target.keys()
        if new:
            # What comes later is read from its beginning, wherever the stream started.
            self._starts |= self._planner.starts(new) if first else self._earliest(new)
        positions = {tp: start.end.get(tp, self._starts.get(tp)) for tp in self._partitions}
        found = {tp: at for tp, at in positions.items() if at is not None}
        void = self._loss.check(start, found, self._ends, self._partitions, self._ids)
        return found, void

    def _earliest(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._planner.earliest(partitions, LOOK_UP_MS)
        except OffsetsTimeoutError as error:  # the others are for the next time
            self._note_timeout(error)
            return offsets_found(error)

    def _end(self, tp: TopicPartition, position: int) -> int:
        end = self._ends.get(tp, position)
        if self._target is not None:
            end = min(end, self._target.get(tp, position))
        return max(end, position)

    def _refresh(self, force: bool = False) -> None:
        """Look at the cluster again if it is time to; an outage leaves what is known."""
        now = self._clock()
        if self._target is not None or (now < self._ends_due and not force):
            return
        try:
            partitions_due = force or now >= self._partitions_due
            if partitions_due:
                # Without that option a query goes on when a topic was deleted since its last run.
                must_exist = not self._has_planned and self._options.fail_on_data_loss
                self._partitions = self._planner.partitions(must_exist=must_exist)
                self._partitions_due = now + PARTITIONS_REFRESH_S
            if force or not self._has_planned:
                ends = self._planner.latest(self._partitions)
            else:
                ends = self._ends | self._lookup.look_up(self._partitions)
            if partitions_due or ends != self._ends:
                # Asked for behind the ends: as long as the ids are the same, the ends are theirs.
                self._ids = self._planner.ids(self._partitions)
            self._ends = ends
            self._refreshed_at = now
        except KafkaError as error:
            if not error.retriable or not self._has_planned:
                raise
            logger.warning("the ends of the partitions could not be looked up: %s", str(error))
        self._ends_due = self._clock() + ENDS_REFRESH_S

    def _note_timeout(self, error: KafkaError) -> None:
        logger.warning("%s", str(error))
        self._partitions_due = self._clock()  # has a topic been deleted?
