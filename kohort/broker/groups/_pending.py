"""Offsets that are committed in open transactions, which no consumer reads yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kohort.broker.groups._member import CommittedOffset

GroupPartition: TypeAlias = tuple[str, str, int]
"""(group, topic, partition)."""


@dataclass(slots=True)
class _PendingOffset:
    """A pending offset.

    ``order`` is the order of writing. ``outdated`` is True if another commit was written later.
    """

    offset: CommittedOffset
    order: int
    outdated: bool


class PendingOffsets:
    """Pending offsets by producer id, which has at most one transaction at a time.

    The offset that was written last wins, independent of which transaction ends last.
    """

    __slots__ = ("_offsets", "_orders")

    def __init__(self) -> None:
        self._offsets: dict[int, dict[GroupPartition, _PendingOffset]] = {}
        self._orders = itertools.count()

    def add(
        self,
        producer_id: int,
        group_partition: GroupPartition,
        offset: CommittedOffset,
        *,
        outdated: bool = False,
    ) -> None:
        pending = _PendingOffset(offset, next(self._orders), outdated)
        self._offsets.setdefault(producer_id, {})[group_partition] = pending

    def mark_outdated(self, group_partition: GroupPartition, before: int | None = None) -> None:
        """Mark earlier pending offsets as outdated, all or those ``before`` an order."""
        for offsets in self._offsets.values():
            pending = offsets.get(group_partition)
            if pending is not None and (before is None or pending.order < before):
                pending.outdated = True

    def remove(self, group_partition: GroupPartition) -> None:
        """Remove the pending offsets of a partition whose committed offset was deleted."""
        for offsets in self._offsets.values():
            offsets.pop(group_partition, None)

    def remove_topic(self, topic: str) -> None:
        for offsets in self._offsets.values():
            for group_partition in [
                group_partition for group_partition in offsets if group_partition[1] == topic
            ]:
                del offsets[group_partition]

    def pending_partitions(self, group_id: str) -> set[tuple[str, int]]:
        """Return the (topic, partition) pairs whose offset an open transaction may change."""
        return {
            (topic, partition)
            for offsets in self._offsets.values()
            for group, topic, partition in offsets
            if group == group_id
        }

    def pop_offsets(
        self, producer_id: int, belongs: Callable[[str], bool]
    ) -> Iterator[tuple[GroupPartition, _PendingOffset]]:
        """Remove the producer's offsets of the groups that belong, and yield those not outdated."""
        offsets = self._offsets.get(producer_id, {})
        for group_partition in [
            group_partition for group_partition in offsets if belongs(group_partition[0])
        ]:
            pending = offsets.pop(group_partition)
            if not pending.outdated:
                yield group_partition, pending
        if not offsets:
            self._offsets.pop(producer_id, None)

    def remove_groups(self, belongs: Callable[[str], bool]) -> None:
        """Remove all offsets of the groups that belong."""
        for producer_id in list(self._offsets):
            list(self.pop_offsets(producer_id, belongs))
