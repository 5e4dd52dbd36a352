"""State of a group member's partitions: existence, ends, and offsets to commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort import TopicPartition
from kohort.spark_connector._offsets import Offsets


class PartitionEnds:
    """Known ends, the topic ids that belong to them, and the number of the last request."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        """Topic ids, looked up after the ends."""
        self.requested = 0
        self.is_urgent = False
        """True if the ends are needed before the next regular lookup."""
        self._answered = 0

    def request(self, *, urgent: bool) -> int:
        """Request all ends. Return the number of the request."""
        self.is_urgent = self.is_urgent or urgent
        self.requested += 1
        return self.requested

    def answer(self, request: int) -> None:
        """Mark a request and all earlier ones as completed."""
        self._answered, self.is_urgent = request, False

    def has_answered(self, request: int) -> bool:
        return self._answered >= request


class ExistingPartitions:
    """Existing partitions with any owner, as last looked up."""

    def __init__(self) -> None:
        self.found: frozenset[TopicPartition] | None = None
        """None before the first lookup."""
        self.is_outdated = False
        """True if the group has assigned a partition since the lookup that the lookup lacks."""

    def note_assigned(self, partition: TopicPartition) -> None:
        """Note a partition that the group assigns."""
        self.is_outdated |= self.found is not None and partition not in self.found

    def replace(self, found: Iterable[TopicPartition]) -> bool:
        """Set the result of a lookup. Return True if it changes something."""
        known = frozenset(found)
        is_change = self.is_outdated or known != self.found
        self.found, self.is_outdated = known, False
        return is_change

    def has_none(self) -> bool:
        """True if the topics have no partitions."""
        return self.found is not None and not self.found

    def may_have(self, partition: TopicPartition) -> bool:
        """True if the partition exists, or if that is not known yet."""
        return self.found is None or partition in self.found


class OffsetCommits:
    """Offsets of finished micro-batches."""

    def __init__(self) -> None:
        self.pending: dict[TopicPartition, int] = {}
        """Offsets that are not committed yet."""
        self.committed: dict[TopicPartition, int] = {}

    def add(self, offsets: Offsets) -> None:
        """Add offsets to commit, except those that are committed already.

        A pending offset may be lower than the committed one, after the restore of a checkpoint. So
        a return to the committed one replaces it.
        """
        self.pending |= {
            tp: at
            for tp, at in offsets.items()
            if tp in self.pending or self.committed.get(tp) != at
        }

    def mark_committed(self, offsets: Offsets, owned: Collection[TopicPartition]) -> None:
        """Record a successful commit. Offsets of partitions not ``owned`` are not kept."""
        for tp, offset in offsets.items():
            if tp in owned:
                self.committed[tp] = offset
            if self.pending.get(tp) == offset:
                del self.pending[tp]

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Commit only offsets of these partitions."""
        self.pending = {tp: at for tp, at in self.pending.items() if tp in partitions}

    def forget(self, partition: TopicPartition) -> None:
        """Forget the offsets of a partition."""
        for table in (self.pending, self.committed):
            table.pop(partition, None)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the offsets of all partitions of these topics."""
        for partition in {*self.pending, *self.committed}:
            if partition.topic in topics:
                self.forget(partition)
