"""Counts and durations of commits, for metrics() and explain()."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.types import OffsetAndMetadata, TopicPartition


class Durations:
    """Count, total and maximum of durations in seconds."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0


class CommitStatistics:
    """Statistics of one consumer's commits. Only the engine writes them, any thread may read."""

    __slots__ = ("commits", "committed", "failed_commits", "last_commit_error")

    def __init__(self) -> None:
        self.commits = Durations()
        self.failed_commits = 0
        self.last_commit_error: str | None = None
        """The error of the latest commit; None if it succeeded."""
        self.committed: dict[TopicPartition, int] = {}
        """The offsets that this consumer last committed, or last read from the coordinator."""

    def note_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float
    ) -> None:
        """Note a successful commit."""
        self.commits.add(seconds)
        self.last_commit_error = None
        self.committed.update((tp, at.offset) for tp, at in offsets.items())

    def forget_topic(self, topic: str) -> None:
        """Drop the committed offsets of a recreated topic, because they belong to the old one."""
        for tp in [tp for tp in self.committed if tp.topic == topic]:
            del self.committed[tp]

    def note_failed_commit(self, error: Exception) -> None:
        """Note a failed commit."""
        self.failed_commits += 1
        self.last_commit_error = f"{type(error).__name__}: {error}"

    def note_committed(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Note the committed offsets that the coordinator returned."""
        self.committed.update((tp, at.offset) for tp, at in found.items() if at is not None)
