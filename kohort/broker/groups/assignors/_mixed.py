"""Assignor ``uniform`` for members with different subscriptions."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from kohort.broker.groups.assignors._member import MemberSpec

_MAX_ROUNDS = 16
"""Most rounds over all topics. Each one about halves the imbalance, and few groups need three."""


def assign_mixed(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> dict[str, dict[bytes, set[int]]]:
    """Assign the partitions as evenly as the subscriptions allow, and move few of them."""
    return _MixedAssignment(members, topics).compute()


class _MixedAssignment:
    """Assignment in the making. Members are indices in the order of the group."""

    def __init__(self, members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> None:
        self._member_ids = list(members)
        self._topics = topics
        self._subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(members.values()):
            for topic in member.subscribed & topics.keys():
                self._subscribers.setdefault(topic, []).append(index)
        self._sizes = [0] * len(members)
        self._owners = {topic: [-1] * topics[topic] for topic in self._subscribers}
        for index, member in enumerate(members.values()):
            for topic in member.subscribed & member.target.keys() & topics.keys():
                for partition in member.target[topic]:
                    if 0 <= partition < topics[topic]:
                        self._move(topic, partition, index)

    def compute(self) -> dict[str, dict[bytes, set[int]]]:
        """Assign what has no owner, balance, and return the partitions of each member."""
        order = sorted(self._subscribers, key=self._rank)
        for topic in order:
            self._assign_free(topic)
        self._balance([topic for topic in order if len(self._subscribers[topic]) > 1])
        assigned: dict[str, dict[bytes, set[int]]] = {each: {} for each in self._member_ids}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assigned[self._member_ids[owner]].setdefault(topic, set()).add(partition)
        return assigned

    def _rank(self, topic: bytes) -> tuple[float, int, tuple[int, int]]:
        """Return the key of a topic: many partitions for a subscriber first, then few choices."""
        subscribers = len(self._subscribers[topic])
        # Java compares topic ids as two signed numbers.
        halves = (
            int.from_bytes(topic[:8], "big", signed=True),
            int.from_bytes(topic[8:], "big", signed=True),
        )
        return -self._topics[topic] / subscribers, subscribers, halves

    def _move(self, topic: bytes, partition: int, to: int) -> None:
        owners = self._owners[topic]
        if owners[partition] >= 0:
            self._sizes[owners[partition]] -= 1
        owners[partition] = to
        self._sizes[to] += 1

    def _by_size(self, topic: bytes) -> list[int]:
        """Return the subscribers of a topic, those with the fewest partitions first."""
        return sorted(self._subscribers[topic], key=lambda member: (self._sizes[member], member))

    def _assign_free(self, topic: bytes) -> None:
        takers = _Takers(self._by_size(topic), self._sizes)
        for partition, owner in enumerate(self._owners[topic]):
            if owner < 0:
                self._move(topic, partition, takers.next()[1])

    def _balance(self, topics: Sequence[bytes]) -> None:
        """Move partitions of topic after topic until a whole round has moved none."""
        last_moved: bytes | None = None
        for _ in range(_MAX_ROUNDS):
            for topic in topics:
                if topic == last_moved:
                    return
                if self._balance_topic(topic) or last_moved is None:
                    last_moved = topic

    def _balance_topic(self, topic: bytes) -> bool:
        """Move partitions from the largest to the smallest subscribers. True if any moved."""
        order = self._by_size(topic)
        parts: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            parts.setdefault(owner, []).append(partition)
        takers = _Takers(order, self._sizes)
        moved = False
        for size, giver in _givers(order, self._sizes, parts):
            taker_size, taker = takers.next()
            if size - taker_size <= 1:
                break
            self._move(topic, parts[giver].pop(), taker)
            moved = True
        return moved


def _givers(
    order: Sequence[int], sizes: Sequence[int], parts: Mapping[int, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Yield members that have the most partitions, each with its size, while they have ``parts``.

    A yielded member gives one away. Members of one size take turns.
    """
    smaller = list(order)
    largest: list[int] = []
    level = 0
    while smaller or largest:
        level = level - 1 if largest else sizes[smaller[-1]]
        while smaller and sizes[smaller[-1]] == level:
            largest.append(smaller.pop())
        turn = 0
        while turn < len(largest):
            if parts.get(largest[turn]):
                yield level, largest[turn]
                turn += 1
            else:
                largest[turn] = largest[0]
                del largest[0]


class _Takers:
    """Queue of members. The next one is always a member with the fewest partitions."""

    def __init__(self, order: Sequence[int], sizes: Sequence[int]) -> None:
        self._order = order
        self._heap = [(sizes[member], position) for position, member in enumerate(order)]

    def next(self) -> tuple[int, int]:
        """Return the partitions of a member, and the member, which then has one more."""
        size, position = self._heap[0]
        heapq.heapreplace(self._heap, (size + 1, position))
        return size, self._order[position]
