"""Existing partitions of a query's topics."""

from __future__ import annotations

from collections.abc import Iterable

from kohort import TopicPartition


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
