"""The sticky deal where all members subscribe to the same topics: everybody gets the same number.

Some members get one more than the others if the partitions do not come out even. A member keeps
what it owned up to its share.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from kohort.coordinator_client.assignors._claims import Ownership
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps, in_steps
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
        self._short = _Waiting(racks)
        """Members below their share."""
        self._full = _Waiting(racks)
        """Members with just their share, who may get one of the extras."""
        self._given_up: dict[TopicPartition, str] = {}
        self.result: dict[str, list[TopicPartition]] = {member: [] for member in ownership.owned}
        self.moving: dict[TopicPartition, str] = {}
        """What goes to another member than the one that may still hold it."""

    def run(self) -> Steps[None]:
        order = {tp.topic: None for tp in self._partitions}
        rank = {topic: number for number, topic in enumerate(order)}
        for member in self._ownership.owned:
            self._keep(member, rank)
            yield
        dealt: set[TopicPartition] = set()
        for kept in self.result.values():
            dealt.update(kept)
            yield
        free: list[TopicPartition] = []
        for some in in_steps(self._partitions):
            free += [tp for tp in some if tp not in dealt]
            yield
        self._short.sort()
        self._full.sort()
        if self._racks.matter:
            hardest_first = yield from self._racks.hardest_first(free)
            free = yield from self._deal_near(hardest_first)
        yield from self._assign(free)

    def _keep(self, member: str, rank: Mapping[str, int]) -> None:
        owned = []
        for tp in self._ownership.owned[member]:
            if self._racks.far(member, tp):
                self._given_up[tp] = member
            elif tp not in self._ownership.contested:
                owned.append(tp)
        owned.sort(key=lambda tp: (tp.partition, rank[tp.topic]))
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

    def _deal_near(self, partitions: Sequence[TopicPartition]) -> Steps[list[TopicPartition]]:
        """Deal within racks, as far as the shares allow; returns what is left."""
        left = []
        turn = 0
        for tp in partitions:
            index = self._short.next_near(tp, turn)
            if index is not None:
                turn = self._give_short(index, tp)
            elif (index := self._full.next_near(tp, 0)) is not None:
                self._give(self._full.pop(index), tp)
                self._take_extra()
            else:
                left.append(tp)
            yield
        return left

    def _give_short(self, index: int, tp: TopicPartition) -> int:
        """Returns the index of the member whose turn is next."""
        short = self._short
        if self._give(short.members[index], tp) >= self._share:
            member = short.pop(index)
            if self._extras > 0:
                self._full.append(member)
        else:
            index += 1
        return index % len(short.members) if short.members else 0

    def _assign(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """In turn: up to the share first, then the extras."""
        short, full = deque(self._short.members), deque(self._full.members)
        for some in in_steps(partitions):
            for tp in some:
                if not short:
                    self._give(full.popleft(), tp)
                    continue
                member = short.popleft()
                if self._give(member, tp) == self._share:
                    full.append(member)
                else:
                    short.append(member)
            yield

    def _give(self, member: str, tp: TopicPartition) -> int:
        """Returns how many the member has now."""
        given = self.result[member]
        given.append(tp)
        if self._given_up.get(tp, member) != member or tp in self._ownership.contested:
            self.moving[tp] = member
        return len(given)


class _Waiting:
    """Members that may get more, in order, with a count of them in each rack."""

    def __init__(self, racks: Racks) -> None:
        self.members: list[str] = []
        self._racks = racks
        self._in_rack: Counter[str | None] = Counter()

    def append(self, member: str) -> None:
        self.members.append(member)
        self._in_rack[self._racks.of_member(member)] += 1

    def pop(self, index: int) -> str:
        member = self.members.pop(index)
        self._in_rack[self._racks.of_member(member)] -= 1
        return member

    def clear(self) -> None:
        self.members.clear()
        self._in_rack.clear()

    def sort(self) -> None:
        self.members.sort(key=java_order)

    def next_near(self, tp: TopicPartition, start: int) -> int | None:
        """Index of the first member from ``start`` on, around the end, with a rack of ``tp``'s."""
        racks = self._racks.of_replicas(tp)
        if not any(self._in_rack[rack] for rack in racks):
            return None
        for step in range(len(self.members)):
            index = (start + step) % len(self.members)
            if self._racks.of_member(self.members[index]) in racks:
                return index
        return None
