"""Planning of micro-batches for a stream that is no member of a group, on the driver.

All methods run in the thread in which Spark calls the reader.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.errors import KafkaError, OffsetsTimeoutError
from kohort.logs import error_text, get_logger
from kohort.spark_connector._offsets import METADATA, Offsets, StreamOffset, new_query_id
from kohort.spark_connector._processes import SparkFolders
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._batch_limits import BatchDelay, limited_ends
from kohort.spark_connector.planning._loss import LossCheck, Losses, next_ids, was_recreated
from kohort.spark_connector.planning._planning import (
    PARTITIONS_REFRESH_S,
    EndLookup,
    OffsetPlanner,
    offsets_found,
)

logger = get_logger("kohort.spark_connector")

ENDS_REFRESH_S = 0.1
"""Seconds between two lookups of ends. Spark calls an idle source every 10 ms."""
LOOK_UP_MS = 5_000
"""Time limit of a lookup. Without it a missing leader delays ``default.api.timeout.ms``."""


class TrackedPartitions:
    """Partitions of the topics with their ends and topic ids, as last looked up."""

    def __init__(
        self, planner: OffsetPlanner, clock: Callable[[], float], *, fail_on_data_loss: bool
    ) -> None:
        self.partitions: set[TopicPartition] = set()
        self.ends: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.refreshed_at = float("-inf")
        self.ends_due = float("-inf")
        """Time at which the next refresh looks up the ends."""
        self._partitions_due = float("-inf")
        self._planner = planner
        self._lookup = EndLookup(planner, LOOK_UP_MS, clock, self.note_timeout)
        self._clock = clock
        self._fail_on_data_loss = fail_on_data_loss

    def refresh(self, *, is_first: bool, force: bool = False) -> None:
        """Refresh what is due. An outage keeps the known values, except for the first time."""
        now = self._clock()
        if now < self.ends_due and not force:
            return
        try:
            self._look_up(now, is_first=is_first, force=force)
        except KafkaError as error:
            if not error.retriable or is_first:
                raise
            logger.warning(
                "the ends of the partitions could not be looked up: %s", error_text(error)
            )
        self.ends_due = self._clock() + ENDS_REFRESH_S

    def _look_up(self, now: float, *, is_first: bool, force: bool) -> None:
        partitions_due = force or now >= self._partitions_due
        if partitions_due:
            # With failOnDataLoss=false a query continues after the deletion of a topic.
            must_exist = is_first and self._fail_on_data_loss
            self.partitions = self._planner.partitions(must_exist=must_exist)
            self._partitions_due = now + PARTITIONS_REFRESH_S
        if force or is_first:
            ends = self._planner.latest(self.partitions)
        else:
            ends = self.ends | self._lookup.look_up(self.partitions)
        if partitions_due or ends != self.ends:
            # Look the ids up after the ends. If they are unchanged, the ends belong to them.
            self.topic_ids = self._planner.ids(self.partitions)
        self.ends = ends
        self.refreshed_at = now

    def note_timeout(self, error: KafkaError) -> None:
        """Log a timeout. The next refresh looks up the partitions, as a topic may be deleted."""
        logger.warning("%s", error_text(error))
        self._partitions_due = self._clock()


COMMIT_MS = 5_000
"""Time limit of a commit, during which Spark waits."""
RETRY_COMMIT_S = 5.0
"""Seconds between two attempts to commit."""


class GroupCommits:
    """Commits of finished micro-batches to a group of which the query is no member.

    Kafka's tools then show the lag of the query. The checkpoint alone decides what is read, so a
    commit that fails is logged and repeated.
    """

    def __init__(
        self, consumer: KafkaConsumer, group: str | None, clock: Callable[[], float]
    ) -> None:
        self._consumer = consumer
        self._group = group
        self._clock = clock
        self._committed: Offsets = {}
        self._due = float("-inf")

    def commit(self, finished: StreamOffset, offsets: Offsets, *, force: bool = False) -> bool:
        """Commit those offsets that are new. Return False if some are still not committed."""
        new = {tp: at for tp, at in offsets.items() if self._committed.get(tp) != at}
        if not new:
            return True
        if self._clock() < self._due and not force:
            return False
        metadata = f"{METADATA}{finished.query or ''}"
        try:
            self._consumer.commit(
                {tp: OffsetAndMetadata(at, metadata) for tp, at in new.items()},
                timeout_ms=COMMIT_MS,
            )
        except KafkaError as error:
            self._due = self._clock() + RETRY_COMMIT_S
            logger.warning(
                "[%s] a commit failed and will be retried: %s", self._group, error_text(error)
            )
            return False
        self._committed = {**self._committed, **new}
        return True


class StreamDriver:
    """Planner of micro-batches from all partitions. It lives as long as the query runs."""

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
        self._tracked = TrackedPartitions(
            self._planner, clock, fail_on_data_loss=options.fail_on_data_loss
        )
        self._clock = clock
        self._sleep = sleep
        self._delay = BatchDelay(options, clock)
        self._loss = LossCheck(options)
        self._session = SparkFolders(clock)
        self._target: dict[TopicPartition, int] | None = None
        self._has_planned = False
        self._query_id = new_query_id()
        self._commits = (
            GroupCommits(consumer, options.group_id, clock) if options.commit_only else None
        )
        self._starts: dict[TopicPartition, int] = {}  # of partitions in no batch yet

    def prepare_available_now(self) -> None:
        """Set the current ends of the partitions as the end of the stream, once."""
        if self._target is None:
            self._tracked.refresh(is_first=not self._has_planned, force=True)
            self._target = dict(self._tracked.ends)

    def next_offset(
        self, start: StreamOffset, max_rows: int | None, *, ignore_minimum: bool = False
    ) -> StreamOffset:
        """Return the batch after ``start``, or ``start`` itself if there are no new records.

        ``ignore_minimum`` plans a batch of any size.
        """
        self._session.check()
        asked_at = self._clock()
        self._refresh()
        self._commit(start, force=self._target is not None)
        found = self._plan(start, max_rows, ignore_minimum)
        if found is start and self._target is None and self._tracked.refreshed_at < asked_at:
            # The result includes records written before the call, because processAllAvailable()
            # waits until the query reports no new records.
            self._sleep(max(0.0, self._tracked.ends_due - asked_at))
            self._refresh()
            found = self._plan(start, max_rows, ignore_minimum)
        return found

    def _plan(
        self, start: StreamOffset, max_rows: int | None, ignore_minimum: bool
    ) -> StreamOffset:
        first = not self._has_planned and start.is_first
        if first and not self._options.fail_on_data_loss:
            self._planner.partitions(must_exist=True)  # fail for a mistyped name
        self._has_planned = True
        positions, losses = self._positions(start, first)
        ends = {tp: self._end(tp, at) for tp, at in positions.items()}
        # A position before the end is that of a log that was truncated or replaced. Without a batch
        # to keep it, the log could grow past the end, and its first records would be skipped.
        goes_back = start.is_after_any(positions)
        may_wait = not (ignore_minimum or goes_back or self._target is not None)
        if may_wait and self._delay.should_wait(positions, ends):
            ends = positions
        elif max_rows is not None:
            ends = limited_ends(positions, ends, max_rows)
        has_news = first or goes_back or bool(set(losses.skipped) - set(start.lost))
        if ends == positions and not has_news:
            return start
        kept = {
            tp: at for tp, at in start.end.items() if tp not in positions and tp not in losses.void
        }
        ids = next_ids(start, self._tracked.topic_ids, {**ends, **kept})
        query = start.query or self._query_id
        return StreamOffset(positions | kept, ends | kept, ids, query, losses.skipped)

    def commit_up_to(self, start: StreamOffset) -> bool:
        """Commit the offsets up to ``start``. Return True if nothing is left to commit."""
        self._refresh()
        return self._commit(start, force=True)

    def _commit(self, finished: StreamOffset, *, force: bool) -> bool:
        """Commit what Spark has finished, unless its topic is gone or was recreated."""
        if self._commits is None:
            return True
        tracked = self._tracked
        recreated = was_recreated(finished, tracked.topic_ids)
        done = {
            tp: at
            for tp, at in finished.end.items()
            if tp in tracked.partitions and tp.topic not in recreated
        }
        return self._commits.commit(finished, done, force=force)

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the ends of the partitions, as last looked up."""
        return dict(self._tracked.ends)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    # -- starts and ends of partitions --------------------------------------------------------

    def _positions(
        self, start: StreamOffset, first: bool
    ) -> tuple[dict[TopicPartition, int], Losses]:
        """Return the next offsets to read, and the losses."""
        tracked = self._tracked
        new = tracked.partitions - start.end.keys() - self._starts.keys()
        if new and not (first or self._target is None):
            # Partitions created after the target was set are not part of this run.
            new &= self._target.keys()
        if new:
            # Partitions created later are read from their beginning, wherever the stream started.
            self._starts |= self._planner.starts(new) if first else self._earliest(new)
        positions = {tp: start.end.get(tp, self._starts.get(tp)) for tp in tracked.partitions}
        found = {tp: at for tp, at in positions.items() if at is not None}
        ends, ids = tracked.ends, tracked.topic_ids
        return found, self._loss.check(start, found, ends, tracked.partitions, ids)

    def _earliest(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._planner.earliest(partitions, LOOK_UP_MS)
        except OffsetsTimeoutError as error:  # the next call looks the others up
            self._tracked.note_timeout(error)
            return offsets_found(error)

    def _end(self, tp: TopicPartition, position: int) -> int:
        end = self._tracked.ends.get(tp, position)
        if self._target is not None:
            end = min(end, self._target.get(tp, position))
        return max(end, position)

    def _refresh(self) -> None:
        if self._target is None:
            self._tracked.refresh(is_first=not self._has_planned)
