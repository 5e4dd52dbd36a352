"""Offsets that are committed in transactions which have not ended: nobody reads them yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kohort.testing.groups._member import CommittedOffset

GroupPartition: TypeAlias = tuple[str, str, int]
"""(group, topic, partition)."""


@dataclass(slots=True)
class _PendingOffset:
    """``order``: of being written. What is ``outdated`` was followed by another commit."""

    offset: CommittedOffset
    order: int
    outdated: bool


class PendingOffsets:
    """By the producer whose transaction it is, which has at most one at a time.

    What counts in the end is what was written last, not whose transaction ended last.
    """

    __slots__ = ("_offsets", "_orders")

    def __init__(self) -> None:
        self._offsets: dict[int, dict[GroupPartition, _PendingOffset]] = {}
        self._orders = itertools.count()

    def add(
        self,
        producer_id: int,
        place: GroupPartition,
        offset: CommittedOffset,
        *,
        outdated: bool = False,
    ) -> None:
        pending = _PendingOffset(offset, next(self._orders), outdated)
        self._offsets.setdefault(producer_id, {})[place] = pending

    def mark_outdated(self, place: GroupPartition, before: int | None = None) -> None:
        """A commit counts now that was written after those up to now, or ``before`` an order."""
        for offsets in self._offsets.values():
            pending = offsets.get(place)
            if pending is not None and (before is None or pending.order < before):
                pending.outdated = True

    def remove(self, place: GroupPartition) -> None:
        """What is committed there is deleted."""
        for offsets in self._offsets.values():
            offsets.pop(place, None)

    def remove_topic(self, topic: str) -> None:
        for offsets in self._offsets.values():
            for place in [place for place in offsets if place[1] == topic]:
                del offsets[place]

    def pending_partitions(self, group_id: str) -> set[tuple[str, int]]:
        """(topic, partition) pairs where a transaction may still change what is committed."""
        return {
            (topic, partition)
            for offsets in self._offsets.values()
            for group, topic, partition in offsets
            if group == group_id
        }

    def pop_offsets(
        self, producer_id: int, belongs: Callable[[str], bool]
    ) -> Iterator[tuple[GroupPartition, _PendingOffset]]:
        """What the producer has committed for the groups that belong, which is so no more.

        What is outdated is left out.
        """
        offsets = self._offsets.get(producer_id, {})
        for place in [place for place in offsets if belongs(place[0])]:
            pending = offsets.pop(place)
            if not pending.outdated:
                yield place, pending
        if not offsets:
            self._offsets.pop(producer_id, None)

    def remove_groups(self, belongs: Callable[[str], bool]) -> None:
        """Drop everything of the groups that belong."""
        for producer_id in list(self._offsets):
            list(self.pop_offsets(producer_id, belongs))
