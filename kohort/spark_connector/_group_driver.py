"""Planning of micro-batches for a stream in a group, on the driver.

All methods run in the thread in which Spark calls the reader. The member's thread does the group's
I/O. Only the first assignment and the end of an AvailableNow query wait for brokers, with time
limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kohort import KafkaTimeoutError, TopicPartition
from kohort.errors import InvalidOptionError
from kohort.logs import get_logger
from kohort.spark_connector._batch_ends import ReportedEnds
from kohort.spark_connector._offsets import Offsets, StreamOffset, new_query_id
from kohort.spark_connector.member._member import LEAVE_GROUP_S, GroupMember
from kohort.spark_connector.member._member_partitions import (
    BatchPlan,
    BatchView,
    Checkpoint,
    ReadablePartition,
)
from kohort.spark_connector.member._shutdown import leave_on_sigterm
from kohort.spark_connector.options._options import MAX_POLL_INTERVAL_MS, SourceOptions
from kohort.spark_connector.planning._batch_limits import BatchDelay, limited_ends
from kohort.spark_connector.planning._loss import LossCheck, next_ids, was_recreated

logger = get_logger("kohort.spark_connector")

FIRST_ASSIGNMENT_S = 10.0
"""Time that the first call waits for an assignment, so that the first batch has partitions."""
REBALANCE_MARGIN_S = 10.0
"""Margin of AvailableNow after the time in which other members revoke or rejoin."""
FINAL_COMMIT_S = 5.0
NEW_ENDS_S = 5.0
"""Time to wait for new ends before the driver reports no new records.

A call takes that time in an outage, without the leader of a partition, and in a rebalance.
"""
LATE_ENDS_S = 1.0
"""The same after a call to which they did not come."""


class GroupDriver:
    """Planner of micro-batches from the partitions of a group member.

    It lives as long as the query runs.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._planned: BatchPlan | None = None
        self._reported = ReportedEnds()
        self._member = GroupMember(
            options, clock, self._finish_reported, self._reported.is_expected
        )
        self._partitions = self._member.partitions
        self._undo_sigterm = leave_on_sigterm(self._member)
        self._rebalance_timeout_s = options.rebalance_wait_s + REBALANCE_MARGIN_S
        # GroupMember has validated these properties, so this is a number.
        limit_ms = options.properties.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
        self._join_timeout_s = int(limit_ms) / 1000 + REBALANCE_MARGIN_S
        self._delay = BatchDelay(options, clock)
        self._loss = LossCheck(options)
        self._target: dict[TopicPartition, int] | None = None
        self._has_waited = self._is_late = self._has_warned_of_commits = False
        self._query_id = new_query_id()
        self._read_partitions: set[TopicPartition] = set()
        """Partitions that this run has read. A reset of the group's offset was before that: the
        broker refuses one while the group has members."""
        self._warned: set[TopicPartition] = set()
        """Partitions whose difference between the group and the checkpoint a warning has named."""
        self._first_of_others: dict[TopicPartition, int] = {}
        """First known offsets of other members' partitions, of those that this run has not read."""

    def prepare_available_now(self) -> None:
        """Set the current ends of the partitions as the end of the stream."""
        partitions = self._partitions
        if not partitions.wait_until_stable(self._join_timeout_s):
            partitions.check()
            raise KafkaTimeoutError(
                f"group {self._options.group_id} was not joined within {self._join_timeout_s:g} s: "
                "the group did not complete a rebalance. Check that all its members keep polling"
            )
        if not partitions.wait_until_assigned(self._rebalance_timeout_s):
            partitions.check()
            group = self._options.group_id
            logger.warning("[%s] the group assigns this query no partitions", group)
        request = partitions.request_ends(urgent=True)
        ends = partitions.wait_for_ends(request, self._rebalance_timeout_s)
        if ends is None:
            self._raise_timeout("the ends of its partitions were not found")
        self._target = ends or {}

    def next_offset(
        self, start: StreamOffset, max_rows: int | None, *, ignore_minimum: bool = False
    ) -> StreamOffset:
        """Return the batch after ``start``, or ``start`` itself if there are no new records.

        Spark asks for the next batch after it has finished the batch up to ``start``, so that batch
        is committed. ``ignore_minimum`` plans a batch of any size.
        """
        partitions = self._partitions
        partitions.request_ends()
        partitions.check()
        self._finish_up_to(start)  # a waiting revocation continues
        if self._target is None:
            self._wait_for_first_partitions()
        deadline = time.monotonic() + (LATE_ENDS_S if self._is_late else NEW_ENDS_S)
        while True:
            if self._target is not None and not partitions.wait_for_bounds(self._join_timeout_s):
                self._raise_timeout("the bounds of its partitions were not found, or none assigned")
            planned = self._begin_next(start, max_rows, ignore_minimum)
            if planned.offset is not None or partitions.is_ending:
                return planned.offset or start
            if self._target is not None:
                if planned.look.has_bounds:  # no rebalance began before the batch was planned
                    self._wait_for_last_commits()
                    return start
                continue
            # The result includes records written before the call, because processAllAvailable()
            # waits until the query reports no new records.
            left = deadline - time.monotonic()
            self._is_late = not planned.look.is_complete
            if not self._is_late or left <= 0:
                return start
            partitions.wait_for_change(planned.look, left)

    def _wait_for_first_partitions(self) -> None:
        """Wait once in a run, so that its first batch has partitions."""
        if self._has_waited:
            return
        self._has_waited = True
        partitions, group = self._partitions, self._options.group_id
        if partitions.wait_for_first_starts(FIRST_ASSIGNMENT_S) or not partitions.is_running:
            return
        if partitions.has_partitions:
            logger.warning(
                "[%s] the starts of some partitions were not found within %g s. The query reads "
                "these as soon as they are",
                group,
                FIRST_ASSIGNMENT_S,
            )
        else:
            logger.warning(
                "[%s] the group assigned this query no partitions within %g s: it has more members "
                "than partitions, or another member has not finished its batch. The query goes on "
                "without records. A run of trigger(once=True) may end without any, before Spark "
                "4.2 also one of trigger(availableNow=True)",
                group,
                FIRST_ASSIGNMENT_S,
            )

    def _wait_for_last_commits(self) -> None:
        partitions = self._partitions
        if partitions.wait_for_commits(FINAL_COMMIT_S) or not partitions.is_running:
            return
        if not self._has_warned_of_commits:
            self._has_warned_of_commits = True
            logger.warning(
                "[%s] the last batch was not committed within %g s. Unless the end of the query "
                "commits it, another member may read it again",
                self._options.group_id,
                FINAL_COMMIT_S,
            )

    def _begin_next(
        self, start: StreamOffset, max_rows: int | None, ignore_minimum: bool
    ) -> BatchPlan:
        partitions = self._partitions
        partitions.check()
        ignore_minimum = ignore_minimum or self._target is not None
        self._note_finished(start)
        found = partitions.begin_batch(
            lambda view: self._reached(view, start),  # new starts may add offsets to commit
            lambda view: self._plan(view, start, max_rows, ignore_minimum),
        )
        if found.offset is not None:
            self._planned = found
        return found

    def _raise_timeout(self, what: str) -> None:
        """Raise KafkaTimeoutError unless the query ends, so that no run ends incomplete."""
        self._partitions.check()
        if not self._partitions.is_ending:
            last_error = self._partitions.last_error
            cause = f": {last_error}" if last_error is not None else ""
            raise KafkaTimeoutError(f"group {self._options.group_id}: {what} in time{cause}")

    def commit_up_to(self, start: StreamOffset) -> bool:
        """Commit the offsets up to ``start``. Return True if nothing is left to commit.

        Spark plans no batch after ``start``.
        """
        partitions = self._partitions
        partitions.check()
        self._finish_up_to(start)
        if not self._has_waited:  # the run has only repeated a batch, before the member joined
            self._wait_for_first_partitions()
            self._finish_up_to(start)
        return partitions.wait_for_commits(FINAL_COMMIT_S) and partitions.has_all_starts

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the ends of this member's partitions, as last looked up."""
        return self._partitions.ready_ends()

    def close(self) -> None:
        """Commit finished micro-batches and leave the group."""
        self._member.request_end()
        if not self._member.wait_ended(LEAVE_GROUP_S):
            logger.warning("[%s] the member did not leave in time", self._options.group_id)
        self._undo_sigterm()

    def _finish_up_to(self, start: StreamOffset) -> None:
        """Mark the batch up to ``start`` as finished. Spark has written it into its commit log."""
        self._note_finished(start)
        self._partitions.finish_batch(lambda view: self._reached(view, start))

    def _finish_reported(self) -> None:
        """Mark the running batch as finished if a listener has reported its end.

        The member's thread calls this, because Spark calls the source at the next trigger only.
        """
        planned = self._planned
        if planned is not None and planned.offset is not None:
            if self._reported.has_finished(planned.offset):
                self._finish_up_to(planned.offset)

    def _note_finished(self, start: StreamOffset) -> None:
        query = start.query or self._query_id
        checkpoint = Checkpoint(query, start.is_first, frozenset(start.end))
        self._partitions.set_checkpoint(checkpoint)
        self._partitions.has_state = start.has_state or self._reported.has_state(start)
        planned = self._planned
        if planned is not None and planned.offset is not None and planned.offset.end == start.end:
            self._read_partitions.update(planned.partitions)

    def _reached(self, view: BatchView, start: StreamOffset) -> dict[TopicPartition, int]:
        """Return the offsets up to ``start`` that the group may commit."""
        void = was_recreated(start, view.topic_ids)
        return {
            tp: start.end[tp]
            for tp, ready in view.ready.items()
            if tp in start.end
            and tp.topic not in void
            and self._position(tp, ready, start) == start.end[tp] <= view.ends.get(tp, 0)
        }

    def _position(self, tp: TopicPartition, ready: ReadablePartition, start: StreamOffset) -> int:
        """Return the next offset to read, from the checkpoint or the group.

        Either may be ahead, because another member may have read further than this query.
        """
        done = start.end.get(tp, 0)
        reset = self._options.group_offset_reset
        if tp not in self._read_partitions:
            if reset == "honor" and ready.may_be_reset:
                return ready.start
            if reset == "group" and ready.committed_by is not None:
                return ready.start
        if tp in start.end and ready.committed_by is None:
            # The group has no offset, and the start of the log may hide lost records.
            return done
        if reset != "group" and tp in start.end and _is_of(start, ready):
            # A query commits what its checkpoint has, so an older checkpoint was restored.
            return done
        return max(done, ready.start)

    def _plan(
        self, view: BatchView, start: StreamOffset, max_rows: int | None, ignore_minimum: bool
    ) -> BatchPlan:
        has_state = self._partitions.has_state
        if has_state:
            self._check_sole_reader(view, start)
        positions = {tp: self._position(tp, at, start) for tp, at in view.readable.items()}
        is_reset = start.is_after_any(positions)
        self._warn_of_restored_checkpoint(positions, view, start)
        if has_state:
            self._warn_of_skipped_records(positions, view, start)
        void, skipped = self._loss.check(
            start, positions, view.ends, view.all_partitions, view.topic_ids
        )
        ends = {tp: self._end(view.ends.get(tp, at), tp, at) for tp, at in positions.items()}
        if view.is_ending:
            return BatchPlan(None, void=void)
        goes_back = start.is_after_any(positions)
        if is_reset:
            # A batch without records keeps a reset of the group's offset. One with records could
            # have the text of the batch before, and a restart before its commit would repeat it.
            ends = positions
        elif not (ignore_minimum or goes_back) and self._delay.should_wait(positions, ends):
            ends = positions
        elif max_rows is not None:
            ends = limited_ends(positions, ends, max_rows)
        # A batch without partitions starts the query only if the topics have none. Otherwise
        # startingOffsets would not apply to the partitions of a later assignment.
        has_no_partitions = view.all_partitions is not None and not view.all_partitions
        is_new = start.is_first and (bool(ends) or has_no_partitions)
        has_news = is_new or goes_back or bool(set(skipped) - set(start.lost))
        if ends == positions and not has_news:
            return BatchPlan(None, void=void)
        # Other members' partitions stay as empty ranges. This member may get them back.
        kept = {tp: at for tp, at in start.end.items() if tp not in positions and tp not in void}
        ids = next_ids(start, view.topic_ids, {**ends, **kept})
        query = start.query or self._query_id
        offset = StreamOffset(positions | kept, ends | kept, ids, query, skipped, has_state)
        return BatchPlan(offset, positions.keys(), void)

    def _check_sole_reader(self, view: BatchView, start: StreamOffset) -> None:
        """Raise InvalidOptionError if another member has read records that the state lacks.

        A partition without an owner is no proof, because a killed run of this query may still be a
        member. Only commits of others are.
        """
        void = was_recreated(start, view.topic_ids)
        known = {tp: at for tp, at in {**view.others, **view.ready}.items() if tp.topic not in void}
        read = [tp for tp, at in known.items() if self._is_read_by_other(tp, at, start)]
        for tp in known.keys() & view.others.keys():
            if tp in self._read_partitions and tp in start.end:
                continue
            first = self._first_of_others.setdefault(tp, known[tp].start)
            if known[tp].start > first and not _is_of(start, known[tp]):
                read.append(tp)
        if read:
            tp = min(read)
            raise InvalidOptionError(
                f"option kafka.group.id: the query keeps state, and another member of group "
                f"{self._options.group_id!r} has read {tp.topic}-{tp.partition} up to offset "
                f"{known[tp].start}. The state lacks these records, so the results would be wrong. "
                "Give this query another group. It then continues at its checkpoint. To use more "
                "machines, give one query more executors"
            )

    def _is_read_by_other(
        self, tp: TopicPartition, ready: ReadablePartition, start: StreamOffset
    ) -> bool:
        """True if another member has committed an offset after this checkpoint's end.

        Without a query's id, the offset may be a reset from before this run read the partition.
        """
        if tp not in start.end or ready.start <= start.end[tp] or _is_of(start, ready):
            return False
        is_by_client = ready.may_be_reset and tp in self._read_partitions
        return is_by_client or bool(ready.committed_by)

    def _warn_of_restored_checkpoint(
        self, positions: Offsets, view: BatchView, start: StreamOffset
    ) -> None:
        """Warn once of partitions that are read again from the checkpoint."""
        ahead = {
            tp: at
            for tp, at in positions.items()
            if at < view.readable[tp].start and _is_of(start, view.readable[tp])
        }
        if new := self._not_warned_of(ahead):
            logger.warning(
                "[%s] the checkpoint is older than the offsets that the query has committed: %s. "
                "It follows the checkpoint, as after its restore from a backup. Option "
                "groupOffsetReset=group follows the group",
                self._options.group_id,
                ", ".join(
                    f"{tp.topic}-{tp.partition} {ahead[tp]} instead of {view.readable[tp].start}"
                    for tp in new
                ),
            )

    def _not_warned_of(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those that no warning has named before, because one will."""
        new = sorted(set(partitions) - self._warned)
        self._warned.update(new)
        return new

    def _warn_of_skipped_records(
        self, positions: Offsets, view: BatchView, start: StreamOffset
    ) -> None:
        """Warn once of records that the state lacks because of a client's offset in the group."""
        ahead = {
            tp: at
            for tp, at in positions.items()
            if at > start.end.get(tp, at) and view.readable[tp].may_be_reset
        }
        if new := self._not_warned_of(ahead):
            logger.warning(
                "[%s] the query keeps state, and its state lacks the records before the offsets "
                "that another client has committed in the group: %s. After a reset of the group's "
                "offsets that is right. Otherwise the results are wrong: give the query another "
                "group, with which it continues at its checkpoint",
                self._options.group_id,
                ", ".join(
                    f"{tp.topic}-{tp.partition} {start.end[tp]} to {ahead[tp] - 1}" for tp in new
                ),
            )

    def _end(self, end: int, tp: TopicPartition, position: int) -> int:
        if self._target is not None:
            end = min(end, self._target.get(tp, position))
        return max(end, position)


def _is_of(start: StreamOffset, ready: ReadablePartition) -> bool:
    """True if a query with this checkpoint committed the start of the partition."""
    return start.query is not None and ready.committed_by == start.query
