"""Group member in the driver process of a query. One thread does all client I/O.

A stream in a group has a GroupMember, whose thread owns the consumer. Spark's thread never calls
the consumer. The two threads share MemberPartitions under one lock. It has the owned partitions and
since when, the ranges of the current micro-batch, and the finished ones.

A revocation runs on the member's thread inside ``poll()``, and waits for Spark's next call, which
is the end of the batch. A request for the batch after an offset proves that the batch up to it is
in Spark's commit log. So that is the time to commit (``_group_driver``). A listener of the program
may report the end before (``_batch_ends``). The member's thread looks for that.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Hashable, Mapping

from kohort import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    TopicPartition,
)
from kohort.errors import (
    OffsetsTimeoutError,
    RebalanceInProgressError,
    ThreadStartError,
    TransportError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kohort.logs import error_text, get_logger
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._offsets import METADATA, Offsets
from kohort.spark_connector._processes import SparkFolders
from kohort.spark_connector.member._member_listener import (
    MemberListener,
    partitions_text,
    user_listener,
)
from kohort.spark_connector.member._member_partitions import (
    LOOK_FOR_END_S,
    MemberPartitions,
    ReadablePartition,
)
from kohort.spark_connector.options import _option_values
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._planning import (
    PARTITIONS_REFRESH_S,
    RETRY_TIMED_OUT_S,
    EndLookup,
    OffsetPlanner,
    offsets_found,
)


class Schedule:
    """Due time of each task. A task without one is due."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Hashable, float] = {}

    def is_due(self, task: Hashable) -> bool:
        due = self._due.get(task)
        return due is None or self._clock() >= due

    def postpone(self, task: Hashable, seconds: float) -> None:
        """Let the task be due in this time from now."""
        self._due[task] = self._clock() + seconds

    def make_due(self, *tasks: Hashable) -> None:
        """Let the tasks be due now."""
        for task in tasks:
            self._due.pop(task, None)


logger = get_logger("kohort.spark_connector")

POLL_MS = 50
ENDS_REFRESH_S = 0.15
RETRY_S = 0.5
WARN_S = 10.0
LOOK_UP_MS = 2_000
"""Time limit of a lookup. A lookup that hangs delays revocations."""
COMMIT_MS = 5_000
LAST_COMMIT_MS = 1_200
OTHERS_REFRESH_S = 1.0
CLOSE_MS = 2_400
LAST_END_S = 2.0
"""Time to wait at the end of the process for the report of the last batch."""
LEAVE_GROUP_S = 5.0
"""Time limit for the end of the process, independent of the brokers."""

# "range" lets members with eager assignors join. Queries alone use cooperative-sticky.
_CLASSIC_DEFAULTS = {"partition.assignment.strategy": "cooperative-sticky,range"}
_CLASSIC_ONLY = frozenset({"session.timeout.ms", "heartbeat.interval.ms"})
"""Options that keep a member in the classic protocol, as ``partition.assignment.strategy`` does."""

_REJOINS = (CommitFailedError, RebalanceInProgressError)
"""Errors after which the consumer rejoins or has rejoined."""


class Task(enum.Enum):
    """Work of the member's thread that is repeated after a time."""

    COMMIT = enum.auto()
    ENDS = enum.auto()
    PARTITIONS = enum.auto()
    STARTS = enum.auto()
    OTHERS = enum.auto()
    TOPIC_IDS = enum.auto()


def _with_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the user's properties with defaults that do not decide the group protocol."""
    is_classic = properties.get("group.protocol", "").lower() == "classic"
    if is_classic or _CLASSIC_ONLY & properties.keys():
        return _CLASSIC_DEFAULTS | dict(properties)
    return dict(properties)


class GroupMember:
    """Consumer in a group with a thread that polls it until :meth:`request_end`."""

    def __init__(
        self,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        look_for_end: Callable[[], object] = lambda: None,
        is_end_expected: Callable[[], bool] = lambda: False,
    ) -> None:
        self.partitions = MemberPartitions()
        self._options = options
        self._look_for_end = look_for_end
        self._is_end_expected = is_end_expected
        self._clock = clock
        self._listener = user_listener(options.rebalance_listener)
        self._consumer = make_consumer(_with_defaults(options.properties), group=True)
        self._planner = OffsetPlanner(self._consumer, options, self._pause, LOOK_UP_MS)
        self._lookup = EndLookup(self._planner, LOOK_UP_MS, clock, self._note_timeout)
        self._session = SparkFolders(clock)
        self._schedule = Schedule(clock)
        self._first_partitions: frozenset[TopicPartition] = frozenset()
        self._unresolved: Mapping[TopicPartition, int] = {}
        self._names_checked = options.fail_on_data_loss  # partitions() then checks them
        self._ids: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="kohort-spark-member", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._consumer.close()
            raise ThreadStartError(
                f"the thread of the group member did not start: {error}. Lower the number of "
                "threads on the driver or raise the limit of the system"
            ) from error

    # -- Spark's thread -----------------------------------------------------------------------

    def request_end(self) -> None:
        """Commit finished micro-batches and leave the group. Return at once, from any thread."""
        self.partitions.end()
        self._consumer.wakeup()

    def wait_ended(self, seconds: float) -> bool:
        """Wait until the member has left. Return False if the time is over first."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- the member's thread ------------------------------------------------------------------

    def _run(self) -> None:
        partitions = self.partitions
        try:
            self._subscribe()
            while partitions.is_running:
                self._step()
        except WakeupError:
            pass  # request_end() was called
        except BaseException as error:
            partitions.fail(error)
        finally:
            partitions.end()
            self._wait_for_last_end()
            try:
                self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS)
            except KafkaError as error:
                logger.warning(
                    "[%s] the member did not leave cleanly: %s",
                    self._options.group_id,
                    error_text(error),
                )

    def _subscribe(self) -> None:
        self._refresh_partitions(must_exist=self._options.fail_on_data_loss)
        self._first_partitions = self.partitions.all_partitions
        listener = MemberListener(self, self.partitions.fail, self._listener)
        if self._options.pattern is not None:
            pattern = _option_values.anchored(self._options.pattern)
            self._consumer.subscribe(pattern=pattern, listener=listener)
        else:
            self._consumer.subscribe(self._options.topics, listener=listener)

    def _step(self) -> None:
        for what, do in (
            ("the session", self._session.check),
            ("the group", self._poll),
            ("the starts of partitions", self._resolve),
            ("the end of a micro-batch", self._note_end),
            ("a commit", self._commit_finished),
            ("the ends of partitions", self._refresh_ends),
            ("the partitions", self._refresh_partitions),
            ("the offsets of other members", self._look_at_others),
        ):
            try:
                do()
            except WakeupError:
                if self.partitions.is_ending:
                    raise
            except KafkaError as error:
                if not self._is_transient(error):
                    raise
                self._note_error(error)
                self._warn(what, error)
                self._pause(RETRY_S)

    def _is_transient(self, error: KafkaError) -> bool:
        """True if the query may wait until the error is over.

        An outage is transient only after the first assignment.
        """
        if isinstance(error, _REJOINS):
            return True
        if isinstance(error, (TransportError, KafkaTimeoutError)):
            return self.partitions.was_assigned or error.retriable
        return error.retriable

    def _poll(self) -> None:
        self._consumer.poll(POLL_MS)  # it calls the listener and returns no records

    def _resolve(self) -> None:
        """Set the starts of new partitions: committed, from the options, or the beginning.

        A start without a committed offset is committed immediately. A restart before the first
        batch then starts there too. The driver commits those of partitions that the checkpoint has,
        because the beginning of the log may hide records that were deleted.
        """
        partitions = self.partitions
        new = partitions.without_start()
        if (checkpoint := partitions.checkpoint) is None:
            return
        if checkpoint.is_missing and not self._names_checked:
            self._check_names()
        if not new or (new == self._unresolved and not self._schedule.is_due(Task.STARTS)):
            return
        found = self._consumer.committed(sorted(new), metadata=True, timeout_ms=LOOK_UP_MS)
        committed = {tp: at for tp, at in found.items() if isinstance(at, OffsetAndMetadata)}
        offsets = {tp: at.offset for tp, at in committed.items()}
        missing = new.keys() - committed.keys()
        own = {
            tp: at.offset
            for tp, at in committed.items()
            if _checkpoint_of(at) == checkpoint.query_id
        }
        if missing:
            starts = self._resolve_starts(missing, is_new=checkpoint.is_missing)
            first = {tp: at for tp, at in starts.items() if tp not in checkpoint.partitions}
            self._commit(first, COMMIT_MS)
            offsets |= starts
            own |= first
        known = {tp: epoch for tp, epoch in new.items() if tp in offsets}
        if known:
            self._look_up_ends(known)
        partitions.set_starts(
            {
                tp: ReadablePartition(epoch, offsets[tp], _checkpoint_of(committed.get(tp)))
                for tp, epoch in known.items()
            },
            own,
        )
        self._unresolved = {tp: epoch for tp, epoch in new.items() if tp not in known}
        self._schedule.postpone(Task.STARTS, RETRY_TIMED_OUT_S)

    def _resolve_starts(self, missing: set[TopicPartition], *, is_new: bool) -> Offsets:
        """Return the starts of partitions without a committed offset, as far as they are found."""
        by_options = missing & self._first_partitions if is_new else set()
        found: dict[TopicPartition, int] = {}
        try:
            if by_options:
                found |= self._planner.starts(by_options, among=self._first_partitions)
            found |= self._planner.earliest(missing - by_options)
        except OffsetsTimeoutError as error:
            self._note_timeout(error)
            found |= offsets_found(error)
        return found

    def _check_names(self) -> None:
        """Fail if a topic that a new query names does not exist, even without failOnDataLoss."""
        try:
            self._planner.partitions(must_exist=True)
        except UnknownTopicOrPartitionError as error:
            self.partitions.fail(error)
        self._names_checked = True

    def _note_end(self) -> None:
        if self.partitions.is_in_flight:
            self._look_for_end()

    def _wait_for_last_end(self) -> None:
        """Wait a while for the report of the last batch, so that leaving commits it.

        Spark ends the process right after the last batch of trigger(once=True). A listener hears of
        that at about the same time.
        """
        if not self._is_end_expected():
            return
        deadline = self._clock() + LAST_END_S
        while self.partitions.is_in_flight and self._clock() < deadline:
            self._look_for_end()
            time.sleep(LOOK_FOR_END_S / 4)

    def _commit_finished(self) -> None:
        done = self.partitions.offsets_to_commit()
        if not done or not self._schedule.is_due(Task.COMMIT):
            return
        try:
            self._commit(done, COMMIT_MS)
        except WakeupError:
            raise
        except KafkaError as error:
            # The query goes on: it reads by Spark's checkpoint and not by the group's offsets.
            self._schedule.postpone(Task.COMMIT, RETRY_S)
            if isinstance(error, CommitFailedError):
                self._schedule.make_due(Task.TOPIC_IDS, Task.ENDS)  # the topic may be recreated
            self._warn("a commit", error)

    def _commit(self, offsets: Offsets, timeout_ms: float) -> None:
        if offsets:
            checkpoint = self.partitions.checkpoint
            metadata = METADATA if checkpoint is None else f"{METADATA}{checkpoint.query_id}"
            entries = {tp: OffsetAndMetadata(at, metadata) for tp, at in offsets.items()}
            self._consumer.commit(entries, timeout_ms=timeout_ms)
            self.partitions.mark_committed(offsets)

    def _refresh_ends(self) -> None:
        if not (self._schedule.is_due(Task.ENDS) or self.partitions.are_ends_urgent):
            return
        try:
            if owned := self.partitions.existing():
                self._look_up_ends(owned)
            else:  # the answer paces the triggers of a query without partitions
                self.partitions.set_ends({}, {}, self.partitions.ends_requested)
        finally:
            self._schedule.postpone(Task.ENDS, ENDS_REFRESH_S)

    def _look_up_ends(self, partitions: Mapping[TopicPartition, object]) -> None:
        request = self.partitions.ends_requested
        ends = self._lookup.look_up(partitions)
        ids: dict[str, str] = {}
        if self.partitions.has_other_ends(ends) or self._schedule.is_due(Task.TOPIC_IDS):
            # Look the ids up after the ends. If they are unchanged, the ends belong to them.
            ids = self._planner.ids(ends, LOOK_UP_MS)
            self._schedule.postpone(Task.TOPIC_IDS, PARTITIONS_REFRESH_S)
            self._move_to_topic_ids(ids)
        self.partitions.set_ends(ends, ids, request)

    def _move_to_topic_ids(self, ids: Mapping[str, str]) -> None:
        """Commit offsets of recreated topics from now on, and none of the old topics.

        The consumer refuses to commit in a recreated topic before a seek.
        """
        other = {topic for topic, topic_id in ids.items() if self._ids.get(topic) != topic_id}
        self.partitions.forget_commits(other & self._ids.keys())
        for tp in self._consumer.assignment():
            if tp.topic in other:
                self._consumer.seek(tp, 0)
        self._ids |= ids

    def _refresh_partitions(self, must_exist: bool = False) -> None:
        if not self._schedule.is_due(Task.PARTITIONS):
            return
        try:
            self.partitions.set_all_partitions(self._planner.partitions(must_exist=must_exist))
        finally:
            self._schedule.postpone(Task.PARTITIONS, PARTITIONS_REFRESH_S)

    def _look_at_others(self) -> None:
        """Look up the offsets of other members' partitions, if the query keeps state."""
        others = self.partitions.of_others()
        if not others or not self._schedule.is_due(Task.OTHERS):
            return
        self._schedule.postpone(Task.OTHERS, OTHERS_REFRESH_S)
        found = self._consumer.committed(sorted(others), metadata=True, timeout_ms=LOOK_UP_MS)
        self.partitions.set_others(
            {
                tp: ReadablePartition(0, at.offset, _checkpoint_of(at))
                for tp, at in found.items()
                if isinstance(at, OffsetAndMetadata)
            }
        )

    # -- the listener -------------------------------------------------------------------------

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Add the partitions. Pause them, because this consumer fetches nothing."""
        self._consumer.pause(*partitions)
        for tp in partitions:
            self._consumer.seek(tp, 0)
        logger.info("[%s] assigned %s", self._options.group_id, partitions_text(partitions))
        self.partitions.add_assigned(partitions)
        if not partitions <= self.partitions.all_partitions:
            self._schedule.make_due(Task.PARTITIONS)  # the group's leader knows newer ones

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Wait for the micro-batch in flight, commit, and release the partitions."""
        begun = self._clock()
        released = self.partitions.release(
            partitions, self._options.rebalance_wait_s, self._look_for_end
        )
        logger.info(
            "[%s] revoked %s after %.2f s",
            self._options.group_id,
            partitions_text(partitions),
            self._clock() - begun,
        )
        if released.unfinished and not released.is_ending:
            logger.warning(
                "[%s] revoked %s before the end of a micro-batch was known, within rebalanceWait "
                "(%g s). Other members will read its records again. With a trigger interval, "
                "register kohort.spark_connector.BatchEndListener",
                self._options.group_id,
                partitions_text(released.unfinished),
                self._options.rebalance_wait_s,
            )
        try:
            self._commit_before_revocation(released.to_commit)
        except KafkaError as error:
            logger.warning(
                "[%s] commit failed before a revocation: %s",
                self._options.group_id,
                error_text(error),
            )

    def _commit_before_revocation(self, offsets: Offsets) -> None:
        """Commit in short attempts, so that the end of the query can stop them.

        In a callback no wakeup interrupts a commit.
        """
        deadline = self._clock() + COMMIT_MS / 1000
        while True:
            try:
                return self._commit(offsets, LAST_COMMIT_MS)
            except KafkaTimeoutError:
                if self.partitions.is_ending or self._clock() >= deadline:
                    raise

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Remove the partitions without a commit, which the broker would refuse."""
        logger.warning("[%s] lost %s", self._options.group_id, partitions_text(partitions))
        self.partitions.remove(partitions)

    # -- helpers ------------------------------------------------------------------------------

    def _note_timeout(self, error: OffsetsTimeoutError) -> None:
        self._note_error(error)
        self._warn("a lookup of offsets", error)

    def _note_error(self, error: KafkaError) -> None:
        self._schedule.make_due(Task.PARTITIONS)  # a topic may be deleted
        self.partitions.note_error(error)

    def _pause(self, seconds: float) -> None:
        self.partitions.pause(seconds)

    def _warn(self, what: str, error: KafkaError) -> None:
        task = f"warning about {what}"
        if self._schedule.is_due(task):
            self._schedule.postpone(task, WARN_S)
            logger.warning(
                "[%s] %s failed and will be retried: %s",
                self._options.group_id,
                what,
                error_text(error),
            )


def _checkpoint_of(committed: OffsetAndMetadata | None) -> str | None:
    """Return the id of the checkpoint that an offset is of, empty if another client committed it.

    Return None without an offset.
    """
    if committed is None or not committed.metadata.startswith(METADATA):
        return None if committed is None else ""
    return committed.metadata.removeprefix(METADATA) or "unknown"
