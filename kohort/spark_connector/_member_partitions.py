"""What a member holds of its group: shared by the thread of Spark's calls and the member's own.

No I/O in here. All of it is read and written under :attr:`MemberPartitions.changed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kohort import KafkaError, TopicPartition
from kohort.spark_connector._offsets import Offsets

Partitions = Iterable[TopicPartition]


class ReadablePartition(NamedTuple):
    """A partition that may be read."""

    epoch: int
    """Counts assignments: a partition that left and came back has another one."""
    start: int
    """Where the group says that reading goes on."""
    may_be_reset: bool
    """What is committed was not committed by a query: it may be somebody's reset."""


class MemberPartitions:
    """Which partitions are held, how far they are read, and what is to be committed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.all_partitions: frozenset[TopicPartition] | None = None
        """All partitions of the topics, whoever has them; None before the first look."""
        self.ends: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        """The ids of topics, as of a time after the ends."""
        self.ends_requested = self.ends_received = 0
        """How often the ends of all that is owned were asked for, and up to which time told."""
        self.ends_urgent = False
        self.is_stable = False
        """False before the first assignment, and from a revocation to the next one."""
        self.epoch = 0
        self.owned: dict[TopicPartition, int] = {}
        """Assigned, each with its epoch."""
        self.ready: dict[TopicPartition, ReadablePartition] = {}
        """Of these the ones whose start is known."""
        self.revoking: set[TopicPartition] = set()
        """Owned still, but nothing new may be read of them."""
        self.in_flight: set[TopicPartition] = set()
        """What the running micro-batch reads, be it owned still or again."""
        self.to_commit: dict[TopicPartition, int] = {}
        """To be committed."""
        self.committed: dict[TopicPartition, int] = {}
        self.query_id = ""
        """The id of the checkpoint."""
        self.has_no_checkpoint: bool | None = None
        """Whether the query starts without a checkpoint; None before Spark has said so."""
        self.version = 0
        """Changes with everything that may make another micro-batch of the same start."""
        self.error: BaseException | None = None
        self.last_error: KafkaError | None = None
        """What went wrong last and may pass."""
        self.is_ending = self.has_ended = False

    # -- the thread of Spark's calls ----------------------------------------------------------

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, or the member fails or ends; whether it holds."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_ending or self.has_ended or until(), seconds)
            return until()

    def request_ends(self, *, urgent: bool = False) -> int:
        """Ask for the ends of all that is owned as of now; ``ends_received`` will be the number."""
        with self.changed:
            self.ends_urgent = self.ends_urgent or urgent
            self.ends_requested += 1
            return self.ends_requested

    def check(self) -> None:
        """Raise what went wrong in the member."""
        with self.changed:
            if self.error is not None:
                raise self.error

    def readable(self) -> dict[TopicPartition, ReadablePartition]:
        """What a new micro-batch may read."""
        return {tp: held for tp, held in self.ready.items() if tp not in self.revoking}

    @property
    def existing(self) -> dict[TopicPartition, int]:
        """What is owned and exists: for a while the group hands out what was deleted."""
        known = self.all_partitions
        return {tp: at for tp, at in self.owned.items() if known is None or tp in known}

    @property
    def has_no_partitions(self) -> bool:
        """There is not one partition to be had."""
        return self.all_partitions is not None and not self.all_partitions

    @property
    def has_partitions(self) -> bool:
        """It has partitions, or nobody has."""
        return bool(self.owned) or self.has_no_partitions

    @property
    def has_all_starts(self) -> bool:
        """The group is at rest, and the start of every partition is known."""
        return self.is_stable and self.existing.keys() <= self.ready.keys()

    def finish_batch(self, done: Offsets) -> None:
        """The micro-batch is over: revocations may go on, and this is to be committed."""
        with self.changed:
            there = self.existing
            for tp, offset in done.items():
                if tp in self.ready and tp in there and self.committed.get(tp) != offset:
                    self.to_commit[tp] = offset
            if self.in_flight:
                self.in_flight = set()
                self.changed.notify_all()

    # -- the thread of the member -------------------------------------------------------------

    def add_assigned(self, partitions: Partitions) -> None:
        """An assignment came, with these new in it."""
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
        """The starts of partitions are known; those that are gone meanwhile are left out."""
        with self.changed:
            for tp, held in found.items():
                if self.owned.get(tp) == held.epoch:
                    self.ready[tp] = held
                    if tp in committed:
                        self.committed[tp] = committed[tp]
            self._notify()

    def release(self, partitions: frozenset[TopicPartition], seconds: float) -> ReleasedPartitions:
        """Wait until the batch that reads them is over, but not too long; then let go of them."""
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
        """They are another member's."""
        with self.changed:
            self.is_stable = False
            for tp in partitions:
                self._forget(tp)
            self._notify()

    def _notify(self) -> None:
        self.version += 1
        self.changed.notify_all()

    def _forget(self, tp: TopicPartition) -> None:
        for kept in (self.owned, self.ready, self.to_commit, self.committed, self.ends):
            kept.pop(tp, None)
        self.revoking.discard(tp)

    def set_ends(self, ends: Offsets, ids: Mapping[str, str], asked: int | None) -> None:
        """The ends of partitions were looked up, and then the ids of their topics if need be.

        ``asked``: if they are those of all that is owned, ``ends_requested`` from before.
        """
        with self.changed:
            if not (ids.items() <= self.topic_ids.items() and ends.items() <= self.ends.items()):
                self.version += 1
            self.topic_ids |= ids
            self.ends |= {tp: end for tp, end in ends.items() if tp in self.owned}
            if asked is not None:
                self.ends_received, self.ends_urgent = asked, False
                self.last_error = None
            self.changed.notify_all()

    def set_all_partitions(self, partitions: Partitions) -> None:
        """These are all there are."""
        with self.changed:
            known = frozenset(partitions)
            if known != self.all_partitions:
                self.all_partitions = known
                # With one that does not exist a commit of all would be tried again and again.
                self.to_commit = {tp: at for tp, at in self.to_commit.items() if tp in known}
                self._notify()

    def mark_committed(self, offsets: Offsets) -> None:
        """A commit was made."""
        with self.changed:
            for tp, offset in offsets.items():
                if tp in self.owned:
                    self.committed[tp] = offset
                if self.to_commit.get(tp) == offset:
                    del self.to_commit[tp]
            self.changed.notify_all()

    def forget_commits(self, topics: Collection[str]) -> None:
        """These topics were recreated: what was committed, or was to be, is of the old ones."""
        with self.changed:
            for kept in (self.to_commit, self.committed):
                for tp in [tp for tp in kept if tp.topic in topics]:
                    del kept[tp]
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """The first error is what Spark's next call raises."""
        with self.changed:
            self.error = self.error or error
            self._notify()

    def end(self, *, has_left: bool = False) -> None:
        """The query ends; with ``has_left``, the member has left."""
        with self.changed:
            self.is_ending = True
            self.has_ended = self.has_ended or has_left
            self._notify()


class ReleasedPartitions(NamedTuple):
    """What is to be said of partitions that were given up."""

    to_commit: dict[TopicPartition, int]
    """To be committed."""
    unfinished: frozenset[TopicPartition]
    """Of these the running batch reads some that nobody waits for any more."""
    is_ending: bool
