"""Partitions of a group member, shared by Spark's thread and the member's thread.

The module does no I/O. Each method is atomic: it holds the lock from its first read to its last
change. Only a property that reads a single attribute needs no lock. A wait releases the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kohort import KafkaError, TopicPartition
from kohort.spark_connector._offsets import Offsets, StreamOffset
from kohort.spark_connector.member._partition_state import (
    ExistingPartitions,
    OffsetCommits,
    PartitionEnds,
)

LOOK_FOR_END_S = 0.1
"""Seconds between two looks for the end of a micro-batch while a revocation waits for it."""


class ReadablePartition(NamedTuple):
    """Partition that a micro-batch may read."""

    epoch: int
    """Number of the assignment. A partition that is assigned again has another number."""
    start: int
    """Next offset to read, from the group's committed offset."""
    committed_by: str | None
    """Id of the checkpoint whose query committed the start, empty for another client.

    None if the start was not committed before.
    """

    @property
    def may_be_reset(self) -> bool:
        """True if no query committed the start, so that it may be a reset by a user."""
        return self.committed_by == ""


class Checkpoint(NamedTuple):
    """State of the query's checkpoint at Spark's first call."""

    query_id: str
    is_missing: bool
    """True if the query starts without a checkpoint."""
    partitions: frozenset[TopicPartition]
    """Partitions that the query has read up to an offset of the checkpoint."""


class BatchView(NamedTuple):
    """Partitions for a planning function. No other thread changes them while it runs."""

    ready: Mapping[TopicPartition, ReadablePartition]
    """Owned partitions with a known start."""
    readable: Mapping[TopicPartition, ReadablePartition]
    """Those of ``ready`` that a new micro-batch may read."""
    ends: Offsets
    topic_ids: Mapping[str, str]
    others: Mapping[TopicPartition, ReadablePartition]
    """Partitions of other members with the group's offsets, if the query keeps state."""
    all_partitions: frozenset[TopicPartition] | None
    """Existing partitions of the topics with any owner. None before the first lookup."""
    is_ending: bool


class Look(NamedTuple):
    """What was known when a micro-batch was planned."""

    has_bounds: bool
    """True if no rebalance was running and the start and the end of each partition were known."""
    is_complete: bool
    """True if the ends were also looked up since the latest request."""
    version: int
    """Number of changes until then."""


class BatchPlan(NamedTuple):
    """Result of planning."""

    offset: StreamOffset | None
    """The micro-batch, None if there is nothing new to read."""
    partitions: Collection[TopicPartition] = ()
    """Partitions that the micro-batch may read."""
    void: Collection[TopicPartition] = ()
    """Partitions whose offsets no longer apply. They are read from the beginning."""
    look: Look = Look(has_bounds=False, is_complete=False, version=0)
    """Set by begin_batch()."""

    def in_flight(self) -> set[TopicPartition]:
        """Return the partitions of which the micro-batch reads records."""
        if self.offset is None:
            return set()
        return {tp for tp, at in self.offset.start.items() if self.offset.end[tp] > at}


class ReleasedPartitions(NamedTuple):
    """Result of a revocation."""

    to_commit: dict[TopicPartition, int]
    """Offsets to commit."""
    unfinished: frozenset[TopicPartition]
    """Partitions whose micro-batch was not finished in time."""
    is_ending: bool
    """True if the query ends."""


Finish = Callable[[BatchView], Offsets]
"""Function that returns the offsets that the finished micro-batches have reached."""
Plan = Callable[[BatchView], BatchPlan]


class MemberPartitions:
    """Assigned partitions, their offsets, and the offsets to commit."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all = ExistingPartitions()
        self._is_stable = False
        """False before the first assignment, and between a revocation and the next assignment."""
        self._epoch = 0
        self._owned: dict[TopicPartition, int] = {}
        """Assigned partitions with their epochs."""
        self._ready: dict[TopicPartition, ReadablePartition] = {}
        self._revoking: set[TopicPartition] = set()
        """Owned partitions that no new micro-batch may read."""
        self._in_flight: set[TopicPartition] = set()
        """Partitions of the running micro-batch, owned or not."""
        self._ends = PartitionEnds()
        self._commits = OffsetCommits()
        self._checkpoint: Checkpoint | None = None
        self._others: Mapping[TopicPartition, ReadablePartition] = {}
        self.has_state = False
        """True if the query is known to keep state."""
        self._version = 0
        """Counter of changes after which the same start may give another micro-batch."""
        self._error: BaseException | None = None
        self._last_error: KafkaError | None = None
        self._is_ending = False

    # -- both threads -------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        return self._is_ending

    @property
    def has_partitions(self) -> bool:
        """True if the member owns partitions, or if the topics have none."""
        with self._changed:
            return bool(self._owned) or self._all.has_none()

    @property
    def has_all_starts(self) -> bool:
        """True if no rebalance is running and the start of every partition is known."""
        with self._changed:
            return self._is_settled and self.existing().keys() <= self._ready.keys()

    @property
    def _has_all_ends(self) -> bool:
        """True if no rebalance is running and the end of every partition is known."""
        return self._is_settled and self.existing().keys() <= self._ends.offsets.keys()

    @property
    def _is_settled(self) -> bool:
        """True if no rebalance is running and it is known which owned partitions exist."""
        return self._is_stable and not self._all.is_outdated

    def readable(self) -> dict[TopicPartition, ReadablePartition]:
        """Return the partitions that a new micro-batch may read."""
        with self._changed:
            return {tp: ready for tp, ready in self._ready.items() if tp not in self._revoking}

    def existing(self) -> dict[TopicPartition, int]:
        """Return the owned partitions that exist.

        For a while the group also assigns partitions of deleted topics.
        """
        with self._changed:
            return {tp: at for tp, at in self._owned.items() if self._all.may_have(tp)}

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()

    # -- Spark's thread -----------------------------------------------------------------------

    def wait_until_stable(self, seconds: float) -> bool:
        """Wait until no rebalance is running. Return False if the time is over first."""
        return self._wait(lambda: self._is_stable, seconds)

    def wait_until_assigned(self, seconds: float) -> bool:
        """Wait until no rebalance is running and the member has partitions."""
        return self._wait(lambda: self._is_stable and self.has_partitions, seconds)

    def wait_for_bounds(self, seconds: float) -> bool:
        """Wait until the starts and ends of all owned partitions are known, if there are any."""
        return self._wait(lambda: self._look().has_bounds, seconds)

    def wait_for_first_starts(self, seconds: float) -> bool:
        """Wait until the member has partitions and their starts are known."""
        return self._wait(lambda: self.has_all_starts and self.has_partitions, seconds)

    def wait_for_ends(self, request: int, seconds: float) -> dict[TopicPartition, int] | None:
        """Return the ends of the owned partitions after they were looked up for the request.

        Wait for a rebalance that runs, because its partitions would be missing. Return None if the
        time is over first.
        """
        with self._changed:
            if not self._wait(
                lambda: self._has_all_ends and self._ends.has_answered(request), seconds
            ):
                return None
            return dict(self._ends.offsets)

    def _look(self) -> Look:
        with self._changed:
            has_bounds = self.has_all_starts and self._has_all_ends
            is_complete = has_bounds and self._ends.has_answered(self._ends.requested)
            return Look(has_bounds, is_complete, self._version)

    def wait_for_change(self, look: Look, seconds: float) -> bool:
        """Wait until everything is known, or the same start may give another batch than then."""
        return self._wait(lambda: self._look().is_complete or self._version > look.version, seconds)

    def wait_for_commits(self, seconds: float) -> bool:
        """Wait until no offset is left to commit."""
        return self._wait(lambda: not self._commits.pending, seconds)

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, or the member fails or ends. Return True if it holds."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending or until(), seconds)
            return until()

    def request_ends(self, *, urgent: bool = False) -> int:
        """Request the ends of all owned partitions. Return the number of the request."""
        with self._changed:
            return self._ends.request(urgent=urgent)

    def ready_ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the partitions with a known start."""
        with self._changed:
            return {tp: at for tp, at in self._ends.offsets.items() if tp in self._ready}

    def check(self) -> None:
        """Raise the error of the member's thread, if there is one."""
        with self._changed:
            if self._error is not None:
                raise self._error

    @property
    def last_error(self) -> KafkaError | None:
        """Last transient error."""
        return self._last_error

    def set_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Set the checkpoint that the query starts from. Later calls change nothing."""
        with self._changed:
            if self._checkpoint is None:
                self._checkpoint = checkpoint
                self._changed.notify_all()

    def finish_batch(self, finish: Finish) -> None:
        """End the micro-batch in flight, and add the offsets that it has reached to the commits.

        A revocation that waits for the micro-batch continues.
        """
        with self._changed:
            done = finish(self._view())
            existing = self.existing()
            self._commits.add(
                {tp: at for tp, at in done.items() if tp in self._ready and tp in existing}
            )
            if self._in_flight:
                self._in_flight = set()
                self._changed.notify_all()

    def begin_batch(self, finish: Finish, plan: Plan) -> BatchPlan:
        """Finish the micro-batch in flight, plan the next one and mark it as in flight.

        No partition is revoked between these steps.
        """
        with self._changed:
            self.finish_batch(finish)
            planned = plan(self._view())._replace(look=self._look())
            for tp in self._ready.keys() & planned.void:
                # The group's offset is void too.
                self._ready[tp] = self._ready[tp]._replace(start=0, committed_by=None)
            self._in_flight = planned.in_flight()
            return planned

    def _view(self) -> BatchView:
        return BatchView(
            self._ready,
            self.readable(),
            self._ends.offsets,
            self._ends.topic_ids,
            {tp: at for tp, at in self._others.items() if tp not in self._owned},
            self._all.found,
            self._is_ending,
        )

    # -- the member's thread ------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True if the query neither ends nor has failed."""
        with self._changed:
            return not self._is_ending and self._error is None

    @property
    def was_assigned(self) -> bool:
        """True after the first assignment."""
        return self._epoch > 0

    @property
    def all_partitions(self) -> frozenset[TopicPartition]:
        """Existing partitions of the topics with any owner, as last looked up."""
        return self._all.found or frozenset()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Checkpoint that the query starts from. None before Spark's first call."""
        return self._checkpoint

    def pause(self, seconds: float) -> None:
        """Wait for this time, or until the query ends."""
        self._wait(lambda: False, seconds)

    def add_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that an assignment adds."""
        with self._changed:
            self._epoch += 1
            for tp in partitions:
                self._forget(tp)
                self._owned[tp] = self._epoch
                self._all.note_assigned(tp)
            self._is_stable = True
            self._notify()

    def without_start(self) -> dict[TopicPartition, int]:
        """Return the existing partitions without a known start, with their epochs."""
        with self._changed:
            return {tp: at for tp, at in self.existing().items() if tp not in self._ready}

    def set_starts(
        self, found: Mapping[TopicPartition, ReadablePartition], committed: Offsets
    ) -> None:
        """Set the starts of partitions. Partitions revoked in the meantime are left out.

        ``committed`` has the offsets that this query has committed. It commits an equal offset of
        another client once more, so that this offset is no reset for a later run.
        """
        with self._changed:
            for tp, ready in found.items():
                if self._owned.get(tp) == ready.epoch:
                    self._ready[tp] = ready
                    if tp in committed:
                        self._commits.committed[tp] = committed[tp]
            self._notify()

    @property
    def is_in_flight(self) -> bool:
        """True while Spark runs a micro-batch, as far as it is known."""
        return bool(self._in_flight)

    def release(
        self,
        partitions: frozenset[TopicPartition],
        seconds: float,
        look_for_end: Callable[[], object] = lambda: None,
    ) -> ReleasedPartitions:
        """Wait up to ``seconds`` for the micro-batch in flight, then remove the partitions.

        ``look_for_end`` is called now and then, and may finish the batch.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            self._is_stable = False
            self._revoking |= partitions
            while not self._is_ending and partitions & self._in_flight:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                look_for_end()
                self._changed.wait_for(
                    lambda: self._is_ending or not partitions & self._in_flight,
                    min(left, LOOK_FOR_END_S),
                )
            unfinished = partitions & self._in_flight
            pending = self._commits.pending
            done = {tp: pending[tp] for tp in partitions if tp in pending}
            self.remove(partitions)
            return ReleasedPartitions(done, frozenset(unfinished), self._is_ending)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that this member no longer owns."""
        with self._changed:
            self._is_stable = False
            for tp in partitions:
                self._forget(tp)
            self._notify()

    def _forget(self, tp: TopicPartition) -> None:
        self._owned.pop(tp, None)
        self._ready.pop(tp, None)
        self._commits.forget(tp)
        self._ends.offsets.pop(tp, None)
        self._revoking.discard(tp)

    @property
    def are_ends_urgent(self) -> bool:
        """True if Spark's thread waits for the ends of all owned partitions."""
        return self._ends.is_urgent

    @property
    def ends_requested(self) -> int:
        """Number of the last request for the ends of all owned partitions."""
        return self._ends.requested

    def has_other_ends(self, ends: Offsets) -> bool:
        """True if an end differs from the known one."""
        with self._changed:
            return not ends.items() <= self._ends.offsets.items()

    def set_ends(self, ends: Offsets, ids: Mapping[str, str], request: int) -> None:
        """Set the ends of partitions, and the topic ids that were looked up after them.

        ``request`` is the value of ``ends_requested`` before the lookup. The request is answered if
        the lookup returned the ends of all owned partitions.
        """
        with self._changed:
            if not (ids.items() <= self._ends.topic_ids.items()) or self.has_other_ends(ends):
                self._version += 1
            self._ends.topic_ids |= ids
            self._ends.offsets |= {tp: end for tp, end in ends.items() if tp in self._owned}
            if self.existing().keys() <= ends.keys():
                self._ends.answer(request)
                if ends:
                    self._last_error = None
            self._changed.notify_all()

    def set_all_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set all existing partitions of the topics."""
        with self._changed:
            if self._all.replace(partitions):
                # A commit with a deleted partition fails and would be retried forever.
                self._commits.keep(self.all_partitions)
                self._notify()

    def of_others(self) -> set[TopicPartition]:
        """Return the partitions that other members may own, if the query keeps state."""
        with self._changed:
            if not self.has_state or not self._is_settled:
                return set()
            return set(self.all_partitions - self._owned.keys())

    def set_others(self, found: Mapping[TopicPartition, ReadablePartition]) -> None:
        """Set the group's offsets of partitions that other members may own."""
        with self._changed:
            if found != self._others:
                self._others = found
                self._notify()

    def offsets_to_commit(self) -> dict[TopicPartition, int]:
        """Return the offsets of finished micro-batches that are not committed yet."""
        with self._changed:
            return dict(self._commits.pending)

    def mark_committed(self, offsets: Offsets) -> None:
        """Record a successful commit."""
        with self._changed:
            self._commits.mark_committed(offsets, self._owned)
            self._changed.notify_all()

    def forget_commits(self, topics: Collection[str]) -> None:
        """Forget the offsets of recreated topics, because they belong to the old topics."""
        with self._changed:
            self._commits.forget_topics(topics)
            self._changed.notify_all()

    def note_error(self, error: KafkaError) -> None:
        """Keep a transient error, as the cause of a later timeout."""
        with self._changed:
            self._last_error = error

    def fail(self, error: BaseException) -> None:
        """Keep the first error. Spark's next call raises it."""
        with self._changed:
            self._error = self._error or error
            self._notify()

    def end(self) -> None:
        """End the query."""
        with self._changed:
            self._is_ending = True
            self._notify()
