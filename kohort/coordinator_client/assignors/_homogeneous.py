"""The sticky deal where all members subscribe to the same topics: everybody gets the same number.

Some members get one more than the others if the partitions do not come out even. A member keeps
what it owned up to its share.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._ownership import Ownership
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps, in_steps
from kohort.types import TopicPartition


class HomogeneousAssignment:
    """One such deal. ``partitions``: all of them, by topic in Java's order and number."""

    def __init__(
        self, ownership: Ownership, partitions: Sequence[TopicPartition], racks: Racks
    ) -> None:
        members = len(ownership.owned)
        self._ownership = ownership
        self._partitions = partitions
        self._racks = racks
        self._quota, self._extras_left = divmod(len(partitions), members)
        """What everybody gets, and how many members may get one more: a number that goes down."""
        self._max_quota = self._quota + (self._extras_left > 0)
        self._below_quota = _MemberQueue(racks)
        """Members below their share."""
        self._at_quota = _MemberQueue(racks)
        """Members with just their share, who may get one of the extras."""
        self._former_owners: dict[TopicPartition, str] = {}
        self.result: dict[str, list[TopicPartition]] = {member: [] for member in ownership.owned}
        self.moving: dict[TopicPartition, str] = {}
        """What goes to another member than the one that may still hold it."""

    def run(self) -> Steps[None]:
        order = {tp.topic: None for tp in self._partitions}
        rank = {topic: number for number, topic in enumerate(order)}
        for member in self._ownership.owned:
            self._keep_owned(member, rank)
            yield
        assigned: set[TopicPartition] = set()
        for kept in self.result.values():
            assigned.update(kept)
            yield
        free: list[TopicPartition] = []
        for some in in_steps(self._partitions):
            free += [tp for tp in some if tp not in assigned]
            yield
        self._below_quota.sort()
        self._at_quota.sort()
        if self._racks.have_effect:
            rarest_first = yield from self._racks.rarest_first(free)
            free = yield from self._assign_by_rack(rarest_first)
        yield from self._assign_free(free)

    def _keep_owned(self, member: str, rank: Mapping[str, int]) -> None:
        owned = []
        for tp in self._ownership.owned[member]:
            if self._racks.is_remote(member, tp):
                self._former_owners[tp] = member
            elif tp not in self._ownership.contested:
                owned.append(tp)
        owned.sort(key=lambda tp: (tp.partition, rank[tp.topic]))
        if len(owned) < self._quota:
            kept = len(owned)
            self._below_quota.append(member)
        elif len(owned) >= self._max_quota and self._extras_left > 0:
            kept = self._max_quota
            self._use_extra()
        else:
            kept = self._quota
            if self._extras_left > 0:
                self._at_quota.append(member)
        self.result[member] += owned[:kept]
        self._former_owners.update(dict.fromkeys(owned[kept:], member))

    def _use_extra(self) -> None:
        self._extras_left -= 1
        if self._extras_left == 0:
            self._at_quota.clear()

    def _assign_by_rack(self, partitions: Sequence[TopicPartition]) -> Steps[list[TopicPartition]]:
        """Deal within racks, as far as the shares allow; returns what is left."""
        left = []
        start = 0
        for tp in partitions:
            index = self._below_quota.next_in_rack(tp, start)
            if index is not None:
                start = self._assign_below_quota(index, tp)
            elif (index := self._at_quota.next_in_rack(tp, 0)) is not None:
                self._add(self._at_quota.pop(index), tp)
                self._use_extra()
            else:
                left.append(tp)
            yield
        return left

    def _assign_below_quota(self, index: int, tp: TopicPartition) -> int:
        """Returns the index of the member whose turn is next."""
        queue = self._below_quota
        if self._add(queue.members[index], tp) >= self._quota:
            member = queue.pop(index)
            if self._extras_left > 0:
                self._at_quota.append(member)
        else:
            index += 1
        return index % len(queue.members) if queue.members else 0

    def _assign_free(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """In turn: up to the share first, then the extras."""
        below, at = deque(self._below_quota.members), deque(self._at_quota.members)
        for some in in_steps(partitions):
            for tp in some:
                if not below:
                    self._add(at.popleft(), tp)
                    continue
                member = below.popleft()
                if self._add(member, tp) == self._quota:
                    at.append(member)
                else:
                    below.append(member)
            yield

    def _add(self, member: str, tp: TopicPartition) -> int:
        """Returns how many the member has now."""
        given = self.result[member]
        given.append(tp)
        if self._former_owners.get(tp, member) != member or tp in self._ownership.contested:
            self.moving[tp] = member
        return len(given)


class _MemberQueue:
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

    def next_in_rack(self, tp: TopicPartition, start: int) -> int | None:
        """Index of the first member from ``start`` on, around the end, with a rack of ``tp``'s."""
        racks = self._racks.of_replicas(tp)
        if not any(self._in_rack[rack] for rack in racks):
            return None
        for step in range(len(self.members)):
            index = (start + step) % len(self.members)
            if self._racks.of_member(self.members[index]) in racks:
                return index
        return None
