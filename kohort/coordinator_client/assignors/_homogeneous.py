"""The sticky assignment of a group whose members all subscribe to the same topics.

Every member gets the same number of partitions, its quota. If a remainder is left, some members get
one more. A member keeps its owned partitions up to its quota.
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
    """The builder of one assignment.

    ``partitions`` has all partitions, sorted by topic in Java's order and by number.
    """

    def __init__(
        self, ownership: Ownership, partitions: Sequence[TopicPartition], racks: Racks
    ) -> None:
        members = len(ownership.owned)
        self._ownership = ownership
        self._partitions = partitions
        self._racks = racks
        self._quota, self._extras_left = divmod(len(partitions), members)
        """The quota of every member, and the number of members that may still get one more."""
        self._max_quota = self._quota + (self._extras_left > 0)
        self._below_quota = _MemberQueue(racks)
        """Members below the quota."""
        self._at_quota = _MemberQueue(racks)
        """Members at the quota that may get one more."""
        self._former_owners: dict[TopicPartition, str] = {}
        self.result: dict[str, list[TopicPartition]] = {member: [] for member in ownership.owned}
        self.moving: dict[TopicPartition, str] = {}
        """Partitions that move to a new member while another one may still own them."""

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
        """Assign within racks up to the quotas. Return the remaining partitions."""
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
        """Assign to a member below the quota. Return the index of the next member."""
        queue = self._below_quota
        if self._add(queue.members[index], tp) >= self._quota:
            member = queue.pop(index)
            if self._extras_left > 0:
                self._at_quota.append(member)
        else:
            index += 1
        return index % len(queue.members) if queue.members else 0

    def _assign_free(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Assign to the members in turn, up to the quota first and then one more each."""
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
        """Add a partition to a member. Return its new number of partitions."""
        given = self.result[member]
        given.append(tp)
        if self._former_owners.get(tp, member) != member or tp in self._ownership.contested:
            self.moving[tp] = member
        return len(given)


class _MemberQueue:
    """An ordered queue of members with their number in each rack."""

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
        """Return the index of the next member in a rack of ``tp``, or None.

        The search begins at ``start`` and wraps around.
        """
        racks = self._racks.of_replicas(tp)
        if not any(self._in_rack[rack] for rack in racks):
            return None
        for step in range(len(self.members)):
            index = (start + step) % len(self.members)
            if self._racks.of_member(self.members[index]) in racks:
                return index
        return None
