"""What a consumer did so far, counted for metrics() and explain()."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.types import OffsetAndMetadata, TopicPartition


class Durations:
    """How often something was done, and how long it took in seconds."""

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
    """Written by the core alone; read from anywhere."""

    __slots__ = ("commits", "committed", "failed_commits", "last_commit_error")

    def __init__(self) -> None:
        self.commits = Durations()
        self.failed_commits = 0
        self.last_commit_error: str | None = None
        """The error of the latest commit, if it failed."""
        self.committed: dict[TopicPartition, int] = {}
        """The offsets that this consumer last committed or fetched from the group."""

    def note_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float
    ) -> None:
        """A commit was done."""
        self.commits.add(seconds)
        self.last_commit_error = None
        self.committed.update((tp, at.offset) for tp, at in offsets.items())

    def forget_topic(self, topic: str) -> None:
        """The topic was recreated: what was committed belongs to the old one."""
        for tp in [tp for tp in self.committed if tp.topic == topic]:
            del self.committed[tp]

    def note_failed_commit(self, error: Exception) -> None:
        """A commit was not done."""
        self.failed_commits += 1
        self.last_commit_error = f"{type(error).__name__}: {error}"

    def note_committed(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """The coordinator told what is committed."""
        self.committed.update((tp, at.offset) for tp, at in found.items() if at is not None)
