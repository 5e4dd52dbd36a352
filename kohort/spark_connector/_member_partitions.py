"""Partitions of a group member, shared by Spark's thread and the member's thread.

The module does no I/O. Every field is read and written under :attr:`MemberPartitions.changed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kohort import KafkaError, TopicPartition
from kohort.spark_connector._offsets import Offsets

Partitions = Iterable[TopicPartition]


class ReadablePartition(NamedTuple):
    """Partition that a micro-batch may read."""

    epoch: int
    """Number of the assignment. A partition that is assigned again has another number."""
    start: int
    """Next offset to read, from the group's committed offset."""
    may_be_reset: bool
    """True if no query committed the offset, so that it may be a reset by a user."""


class MemberPartitions:
    """Assigned partitions, their offsets, and the offsets to commit."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.all_partitions: frozenset[TopicPartition] | None = None
        """Existing partitions of the topics with any owner. None before the first lookup."""
        self.ends: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        """Topic ids, looked up after the ends."""
        self.ends_requested = self.ends_received = 0
        """Number of requests for the ends of all owned partitions, and the last one answered."""
        self.ends_urgent = False
        self.is_stable = False
        """False before the first assignment, and between a revocation and the next assignment."""
        self.epoch = 0
        self.owned: dict[TopicPartition, int] = {}
        """Assigned partitions with their epochs."""
        self.ready: dict[TopicPartition, ReadablePartition] = {}
        """Owned partitions with a known start."""
        self.revoking: set[TopicPartition] = set()
        """Owned partitions that no new micro-batch may read."""
        self.in_flight: set[TopicPartition] = set()
        """Partitions of the running micro-batch, owned or not."""
        self.to_commit: dict[TopicPartition, int] = {}
        """Offsets of finished micro-batches that are not committed yet."""
        self.committed: dict[TopicPartition, int] = {}
        self.query_id = ""
        """Id of the checkpoint."""
        self.has_no_checkpoint: bool | None = None
        """True if the query starts without a checkpoint. None before Spark's first call."""
        self.version = 0
        """Counter of changes after which the same start may give another micro-batch."""
        self.error: BaseException | None = None
        self.last_error: KafkaError | None = None
        """Last transient error."""
        self.is_ending = self.has_ended = False

    # -- Spark's thread -----------------------------------------------------------------------

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, or the member fails or ends. Return True if it holds."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_ending or self.has_ended or until(), seconds)
            return until()

    def request_ends(self, *, urgent: bool = False) -> int:
        """Request the ends of all owned partitions.

        Return the number that ``ends_received`` reaches when the ends have arrived.
        """
        with self.changed:
            self.ends_urgent = self.ends_urgent or urgent
            self.ends_requested += 1
            return self.ends_requested

    def check(self) -> None:
        """Raise the error of the member's thread, if there is one."""
        with self.changed:
            if self.error is not None:
                raise self.error

    def readable(self) -> dict[TopicPartition, ReadablePartition]:
        """Return the partitions that a new micro-batch may read."""
        return {tp: ready for tp, ready in self.ready.items() if tp not in self.revoking}

    @property
    def existing(self) -> dict[TopicPartition, int]:
        """Owned partitions that exist.

        For a while the group also assigns partitions of deleted topics.
        """
        known = self.all_partitions
        return {tp: at for tp, at in self.owned.items() if known is None or tp in known}

    @property
    def has_no_partitions(self) -> bool:
        """True if the topics have no partitions."""
        return self.all_partitions is not None and not self.all_partitions

    @property
    def has_partitions(self) -> bool:
        """True if the member owns partitions, or if the topics have none."""
        return bool(self.owned) or self.has_no_partitions

    @property
    def has_all_starts(self) -> bool:
        """True if no rebalance is running and the start of every partition is known."""
        return self.is_stable and self.existing.keys() <= self.ready.keys()

    def finish_batch(self, done: Offsets) -> None:
        """End the micro-batch in flight and add its offsets to ``to_commit``.

        A revocation that waits for the micro-batch continues.
        """
        with self.changed:
            existing = self.existing
            for tp, offset in done.items():
                if tp in self.ready and tp in existing and self.committed.get(tp) != offset:
                    self.to_commit[tp] = offset
            if self.in_flight:
                self.in_flight = set()
                self.changed.notify_all()

    # -- the member's thread ------------------------------------------------------------------

    def add_assigned(self, partitions: Partitions) -> None:
        """Add the partitions that an assignment adds."""
        with self.changed:
            self.epoch += 1
            for tp in partitions:
                self._forget(tp)
                self.owned[tp] = self.epoch
            self.is_stable = True
            self._notify()

    def set_starts(
        self, found: Mapping[TopicPartition, ReadablePartition], committed: Offsets
    ) -> None:
        """Set the starts of partitions. Partitions revoked in the meantime are left out."""
        with self.changed:
            for tp, ready in found.items():
                if self.owned.get(tp) == ready.epoch:
                    self.ready[tp] = ready
                    if tp in committed:
                        self.committed[tp] = committed[tp]
            self._notify()

    def release(self, partitions: frozenset[TopicPartition], seconds: float) -> ReleasedPartitions:
        """Wait up to ``seconds`` for the micro-batch in flight, then remove the partitions."""
        with self.changed:
            self.is_stable = False
            self.revoking |= partitions
            self.changed.wait_for(
                lambda: self.is_ending or not partitions & self.in_flight, seconds
            )
            unfinished = partitions & self.in_flight
            done = {tp: self.to_commit[tp] for tp in partitions if tp in self.to_commit}
            self.remove(partitions)
            return ReleasedPartitions(done, frozenset(unfinished), self.is_ending)

    def remove(self, partitions: Partitions) -> None:
        """Remove partitions that this member no longer owns."""
        with self.changed:
            self.is_stable = False
            for tp in partitions:
                self._forget(tp)
            self._notify()

    def _notify(self) -> None:
        self.version += 1
        self.changed.notify_all()

    def _forget(self, tp: TopicPartition) -> None:
        for table in (self.owned, self.ready, self.to_commit, self.committed, self.ends):
            table.pop(tp, None)
        self.revoking.discard(tp)

    def set_ends(self, ends: Offsets, ids: Mapping[str, str], request: int | None) -> None:
        """Set the ends of partitions, and the topic ids that were looked up after them.

        ``request`` is the value of ``ends_requested`` before the lookup, if the lookup returned the
        ends of all owned partitions.
        """
        with self.changed:
            if not (ids.items() <= self.topic_ids.items() and ends.items() <= self.ends.items()):
                self.version += 1
            self.topic_ids |= ids
            self.ends |= {tp: end for tp, end in ends.items() if tp in self.owned}
            if request is not None:
                self.ends_received, self.ends_urgent = request, False
                self.last_error = None
            self.changed.notify_all()

    def set_all_partitions(self, partitions: Partitions) -> None:
        """Set all existing partitions of the topics."""
        with self.changed:
            known = frozenset(partitions)
            if known != self.all_partitions:
                self.all_partitions = known
                # A commit with a deleted partition fails and would be retried forever.
                self.to_commit = {tp: at for tp, at in self.to_commit.items() if tp in known}
                self._notify()

    def mark_committed(self, offsets: Offsets) -> None:
        """Record a successful commit."""
        with self.changed:
            for tp, offset in offsets.items():
                if tp in self.owned:
                    self.committed[tp] = offset
                if self.to_commit.get(tp) == offset:
                    del self.to_commit[tp]
            self.changed.notify_all()

    def forget_commits(self, topics: Collection[str]) -> None:
        """Forget the offsets of recreated topics, because they belong to the old topics."""
        with self.changed:
            for table in (self.to_commit, self.committed):
                for tp in [tp for tp in table if tp.topic in topics]:
                    del table[tp]
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Keep the first error. Spark's next call raises it."""
        with self.changed:
            self.error = self.error or error
            self._notify()

    def end(self, *, has_left: bool = False) -> None:
        """End the query. ``has_left`` says that the member has left its group."""
        with self.changed:
            self.is_ending = True
            self.has_ended = self.has_ended or has_left
            self._notify()


class ReleasedPartitions(NamedTuple):
    """Result of a revocation."""

    to_commit: dict[TopicPartition, int]
    """Offsets to commit."""
    unfinished: frozenset[TopicPartition]
    """Partitions whose micro-batch was not finished in time."""
    is_ending: bool
    """True if the query ends."""
