"""Batches in flight of a share-partition, with one state or with a state for each offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kohort.broker.share._values import RecordState, StateBatch
from kohort.types import NamedTuple


@dataclass(eq=False, slots=True)
class Delivery:
    """State of a batch or an offset. ``member`` and ``deadline`` are those of its lock."""

    state: RecordState
    count: int
    member: str = ""
    deadline: float = 0.0

    def lock(self, member: str, deadline: float) -> None:
        """Give the records to a member, which counts as one delivery."""
        self.state, self.member, self.deadline = RecordState.ACQUIRED, member, deadline
        self.count += 1

    def set(self, state: RecordState) -> None:
        """Set a state without a lock."""
        self.state, self.member = state, ""


class Unit(NamedTuple):
    """Offsets with one state."""

    first: int
    last: int
    delivery: Delivery

    def stored_as(self, state: RecordState) -> StateBatch:
        """Return what is written when the unit gets a state."""
        return StateBatch(self.first, self.last, state, self.delivery.count)


class InFlightBatch:
    """Offsets that were acquired or stored together.

    It has one state for all of them, until a part of it needs its own. Then it has one for each
    offset, for good.
    """

    __slots__ = ("_deliveries", "first", "last")

    def __init__(self, first: int, last: int, delivery: Delivery) -> None:
        self.first = first
        self.last = last
        self._deliveries = [delivery]

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def whole(self) -> Delivery | None:
        """The one state of the batch, None if each offset has its own."""
        is_split = len(self._deliveries) > 1
        return None if is_split else self._deliveries[0]

    def split(self) -> None:
        """Give each offset its own state."""
        if len(self._deliveries) == 1 and len(self) > 1:
            (one,) = self._deliveries
            self._deliveries = [replace(one) for _ in range(len(self))]

    def units(self, first: int | None = None, last: int | None = None) -> Iterator[Unit]:
        """Yield the states of the offsets from ``first`` to ``last``.

        A batch with one state yields all of itself.
        """
        if len(self._deliveries) == 1:
            yield Unit(self.first, self.last, self._deliveries[0])
            return
        start = self.first if first is None else max(first, self.first)
        end = self.last if last is None else min(last, self.last)
        for offset in range(start, end + 1):
            yield Unit(offset, offset, self._deliveries[offset - self.first])
