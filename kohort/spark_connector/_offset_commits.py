"""Offsets that a group member has to commit, and those that it has committed."""

from __future__ import annotations

from collections.abc import Collection

from kohort import TopicPartition
from kohort.spark_connector._offsets import Offsets


class OffsetCommits:
    """Offsets of finished micro-batches."""

    def __init__(self) -> None:
        self.pending: dict[TopicPartition, int] = {}
        """Offsets that are not committed yet."""
        self.committed: dict[TopicPartition, int] = {}

    def add(self, offsets: Offsets) -> None:
        """Add offsets to commit, except those that are committed already."""
        self.pending |= {tp: at for tp, at in offsets.items() if self.committed.get(tp) != at}

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
