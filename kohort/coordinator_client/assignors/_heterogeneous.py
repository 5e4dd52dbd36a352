"""The sticky assignment of a group whose members subscribe to different topics.

1. Members keep the partitions that they own.
2. Each free partition goes to the least loaded subscriber of its topic.
3. Single partitions move to subscribers that have at least two partitions fewer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from kohort.coordinator_client.assignors._base import Subscription
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._movements import Movements
from kohort.coordinator_client.assignors._ownership import Ownership
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps, in_steps
from kohort.types import TopicPartition

_MOVES_PER_PARTITION = 20
"""Limit of moves for each partition. The moves end without it, but there is no proof of that."""

_Assignment = dict[str, dict[TopicPartition, None]]


class _Loads:
    """The members, sorted by their number of partitions and then by Java's order."""

    def __init__(self, assignment: _Assignment) -> None:
        self._names = sorted(assignment, key=java_order)
        self._keys = {
            name: len(assignment[name]) * len(assignment) + rank
            for rank, name in enumerate(self._names)
        }
        self._sorted = sorted(self._keys.values())

    def load_of(self, member: str) -> int:
        return self._keys[member] // len(self._names)

    def change(self, member: str, by: int) -> None:
        key = self._keys[member]
        del self._sorted[bisect_left(self._sorted, key)]
        self._keys[member] = key = key + by * len(self._names)
        insort(self._sorted, key)

    def least_loaded(self, among: frozenset[str]) -> str:
        """Return the least loaded member of a set that is not empty."""
        if 4 * len(among) >= len(self._names):
            for key in self._sorted:
                name = self._names[key % len(self._names)]
                if name in among:
                    return name
        return min(among, key=self._keys.__getitem__)


class HeterogeneousAssignment:
    """The builder of one assignment.

    ``partitions`` has all partitions, sorted by topic in Java's order and by number.
    """

    def __init__(
        self,
        subscriptions: Mapping[str, Subscription],
        ownership: Ownership,
        partitions: Sequence[TopicPartition],
        racks: Racks,
    ) -> None:
        self._subscriptions = subscriptions
        self._ownership = ownership
        self._former_owners = ownership.former_owners
        self._racks = racks
        self._partitions = partitions
        self._subscribers: dict[str, frozenset[str]] = {}
        """Subscribed members by topic, at least one each."""
        self._owners: dict[TopicPartition, str] = {}
        self._revoking = False
        """True if a member must revoke partitions in any case.

        Then balancing with the free partitions alone cannot avoid a revocation.
        """
        self._moves_left = _MOVES_PER_PARTITION * len(partitions)
        self._movements = Movements()
        self._assignment: _Assignment = {}

    def _set_up(self) -> Steps[None]:
        subscribers: dict[str, set[str]] = {}
        for member, subscription in self._subscriptions.items():
            for topic in subscription.topics:
                subscribers.setdefault(topic, set()).add(member)
            yield
        by_topic: dict[str, list[TopicPartition]] = {}
        for some in in_steps(self._partitions):
            for tp in some:
                by_topic.setdefault(tp.topic, []).append(tp)
            yield
        self._subscribers = {topic: frozenset(subscribers[topic]) for topic in by_topic}
        yield
        fewest_first = sorted(by_topic, key=lambda topic: len(self._subscribers[topic]))
        ordered: list[TopicPartition] = []
        for topic in fewest_first:
            ordered += by_topic[topic]
            yield
        self._partitions = ordered
        for member, owned in self._ownership.owned.items():
            self._assignment[member] = self._keep_owned(member, owned)
            yield
        self._loads = _Loads(self._assignment)

    def _keep_owned(
        self, member: str, owned: Iterable[TopicPartition]
    ) -> dict[TopicPartition, None]:
        kept: dict[TopicPartition, None] = {}
        for tp in owned:
            if member in self._subscribers[tp.topic] and not self._racks.is_remote(member, tp):
                kept[tp] = None
                self._owners[tp] = member
            else:
                self._revoking = True
        return kept

    def run(self) -> Steps[dict[str, list[TopicPartition]]]:
        yield from self._set_up()
        is_first = not any(self._assignment.values())
        free: list[TopicPartition] = []
        for some in in_steps(self._partitions):
            free += [tp for tp in some if tp not in self._owners]
            yield
        yield from self._assign_free(free)
        sharing = frozenset().union(*(who for who in self._subscribers.values() if len(who) > 1))
        yield
        before: _Assignment = {}
        for member, partitions in self._assignment.items():
            before[member] = dict(partitions)
            yield
        if not self._revoking:
            # Moving only free partitions may balance the group without a revocation.
            yield from self._balance(free)
        moved = yield from self._balance(self._partitions)
        if not is_first and moved:
            after = _imbalance(len(self._assignment[member]) for member in sharing)
            if after >= _imbalance(len(before[member]) for member in sharing):
                self._assignment = before
        result: dict[str, list[TopicPartition]] = {}
        for member, partitions in self._assignment.items():
            result[member] = list(partitions)
            yield
        return result

    def _assign_free(self, free: Sequence[TopicPartition]) -> Steps[None]:
        remote: Sequence[TopicPartition] = free
        if self._racks.have_effect:
            remote = []
            in_rack: dict[tuple[str, frozenset[str]], frozenset[str]] = {}
            """Subscribers that are not in a remote rack, by topic and racks of the replicas."""
            for tp in free:
                kind = tp.topic, self._racks.of_replicas(tp)
                if kind not in in_rack:
                    subscribers = self._subscribers[tp.topic]
                    in_rack[kind] = frozenset(
                        m for m in subscribers if not self._racks.is_remote(m, tp)
                    )
                if in_rack[kind]:
                    self._add(tp, self._loads.least_loaded(in_rack[kind]))
                else:
                    remote.append(tp)
                yield
        for tp in remote:
            self._add(tp, self._loads.least_loaded(self._subscribers[tp.topic]))
            yield

    def _add(self, tp: TopicPartition, member: str) -> None:
        self._assignment[member][tp] = None
        self._owners[tp] = member
        self._loads.change(member, 1)

    # --- moving ---------------------------------------------------------------------------------

    def _balance(self, partitions: Sequence[TopicPartition]) -> Steps[bool]:
        """Move partitions until no move helps. Return True if one was moved."""
        movable: list[TopicPartition] = []
        for some in in_steps(partitions):
            movable += [tp for tp in some if len(self._subscribers[tp.topic]) > 1]
            yield
        any_moved, moved = False, True
        while moved and self._moves_left > 0:
            moved = False
            for tp in movable:
                target = self._better_owner(tp)
                if target is not None:
                    self._move(tp, target)
                    moved = any_moved = True
                yield
        return any_moved

    def _better_owner(self, tp: TopicPartition) -> str | None:
        subscribers = self._subscribers[tp.topic]
        load = self._loads.load_of(self._owners[tp])
        former = self._former_owners.get(tp)
        if former is not None and former in subscribers and load > self._loads.load_of(former) + 1:
            return former
        least = self._loads.least_loaded(subscribers)
        return least if load > self._loads.load_of(least) + 1 else None

    def _move(self, tp: TopicPartition, target: str) -> None:
        """Move the partition, or another one of its topic that moved in the other direction."""
        self._moves_left -= 1
        tp = self._movements.swap_candidate(tp, self._owners[tp], target)
        source = self._owners[tp]
        self._movements.record(tp, source, target)
        del self._assignment[source][tp]
        self._loads.change(source, -1)
        self._add(tp, target)


def _imbalance(loads: Iterable[int]) -> int:
    """Return the sum of the differences between all pairs of loads."""
    found = sorted(loads)
    return sum(load * (2 * index - len(found) + 1) for index, load in enumerate(found))
