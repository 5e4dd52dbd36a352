"""Offsets that are committed in transactions which have not ended: nobody reads them yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from kohort.testing.groups._member import CommittedOffset

Place: TypeAlias = tuple[str, str, int]
"""(group, topic, partition)."""


class PendingOffsets:
    """By the producer whose transaction it is, which has at most one at a time."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[int, dict[Place, CommittedOffset]] = {}

    def add(self, producer_id: int, place: Place, offset: CommittedOffset) -> None:
        self._offsets.setdefault(producer_id, {})[place] = offset

    def places(self, group_id: str) -> set[tuple[str, int]]:
        """(topic, partition) pairs where a transaction may still change what is committed."""
        return {
            (topic, partition)
            for offsets in self._offsets.values()
            for group, topic, partition in offsets
            if group == group_id
        }

    def take(
        self, producer_id: int, belongs: Callable[[str], bool]
    ) -> Iterator[tuple[Place, CommittedOffset]]:
        """What the producer has committed for the groups that belong, which is so no more."""
        offsets = self._offsets.get(producer_id, {})
        for place in [place for place in offsets if belongs(place[0])]:
            yield place, offsets.pop(place)
        if not offsets:
            self._offsets.pop(producer_id, None)

    def forget(self, belongs: Callable[[str], bool]) -> None:
        """Drop everything of the groups that belong."""
        for producer_id in list(self._offsets):
            list(self.take(producer_id, belongs))
