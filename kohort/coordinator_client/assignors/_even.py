"""The sticky deal where all members subscribe to the same topics: everybody gets the same number.

Some members get one more than the others if the partitions do not come out even. A member keeps
what it owned up to its share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kohort.coordinator_client.assignors._claims import Ownership
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._racks import Racks
from kohort.types import TopicPartition


class EvenDeal:
    """One such deal. ``partitions``: all of them, by topic in Java's order and number."""

    def __init__(
        self, ownership: Ownership, partitions: Sequence[TopicPartition], racks: Racks
    ) -> None:
        members = len(ownership.owned)
        self._ownership = ownership
        self._partitions = partitions
        self._racks = racks
        self._share, self._extras = divmod(len(partitions), members)
        """What everybody gets, and how many members may get one more: a number that goes down."""
        self._most = self._share + (self._extras > 0)
        self._short: list[str] = []
        """Members below their share."""
        self._full: list[str] = []
        """Members with just their share, who may get one of the extras."""
        self._given_up: dict[TopicPartition, str] = {}
        self.result: dict[str, list[TopicPartition]] = {member: [] for member in ownership.owned}
        self.moving: dict[TopicPartition, str] = {}
        """What goes to another member than the one that may still hold it."""

    def run(self) -> None:
        for member in self._ownership.owned:
            self._keep(member)
        dealt = {tp for kept in self.result.values() for tp in kept}
        rest = [tp for tp in self._partitions if tp not in dealt]
        self._short.sort(key=java_order)
        self._full.sort(key=java_order)
        if self._racks.matter:
            rest = self._deal_near(self._racks.hardest_first(rest))
        self._deal(rest)

    def _keep(self, member: str) -> None:
        owned = []
        for tp in self._ownership.owned[member]:
            if self._racks.far(member, tp):
                self._given_up[tp] = member
            elif tp not in self._ownership.contested:
                owned.append(tp)
        owned.sort(key=lambda tp: (tp.partition, java_order(tp.topic)))
        if len(owned) < self._share:
            kept = len(owned)
            self._short.append(member)
        elif len(owned) >= self._most and self._extras > 0:
            kept = self._most
            self._take_extra()
        else:
            kept = self._share
            if self._extras > 0:
                self._full.append(member)
        self.result[member] += owned[:kept]
        self._given_up.update(dict.fromkeys(owned[kept:], member))

    def _take_extra(self) -> None:
        self._extras -= 1
        if self._extras == 0:
            self._full.clear()

    def _deal_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Deal within racks, as far as the shares allow; returns what is left."""
        left = []
        turn = 0
        for tp in partitions:
            index = self._racks.next_near(tp, self._short, turn)
            if index is not None:
                turn = self._give_short(index, tp)
            elif (index := self._racks.next_near(tp, self._full, 0)) is not None:
                self._give(self._full.pop(index), tp)
                self._take_extra()
            else:
                left.append(tp)
        return left

    def _give_short(self, index: int, tp: TopicPartition) -> int:
        """Returns the index of the member whose turn is next."""
        member = self._short[index]
        if self._give(member, tp) >= self._share:
            del self._short[index]
            if self._extras > 0:
                self._full.append(member)
        else:
            index += 1
        return index % len(self._short) if self._short else 0

    def _deal(self, partitions: Sequence[TopicPartition]) -> None:
        """In turn: up to the share first, then the extras."""
        short, full = deque(self._short), deque(self._full)
        for tp in partitions:
            if not short:
                self._give(full.popleft(), tp)
                continue
            member = short.popleft()
            if self._give(member, tp) == self._share:
                full.append(member)
            else:
                short.append(member)

    def _give(self, member: str, tp: TopicPartition) -> int:
        """Returns how many the member has now."""
        given = self.result[member]
        given.append(tp)
        if self._given_up.get(tp, member) != member or tp in self._ownership.contested:
            self.moving[tp] = member
        return len(given)
