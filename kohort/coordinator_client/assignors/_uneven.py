"""The sticky deal where members subscribe to different topics: as balanced as that allows.

What is owned stays; what is free goes to the least loaded of those who want it; then partitions
move, one by one, from members to others who want them and have at least two fewer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from kohort.coordinator_client.assignors._base import Subscription
from kohort.coordinator_client.assignors._claims import Ownership
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._movements import Movements
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps, in_steps
from kohort.types import TopicPartition

_MOVES_PER_PARTITION = 20
"""Moving ends by itself, but nothing proves it."""

_Deal = dict[str, dict[TopicPartition, None]]


class _Loads:
    """The members, by the number of their partitions and then by Java's order."""

    def __init__(self, deal: _Deal) -> None:
        self._names = sorted(deal, key=java_order)
        self._keys = {
            name: len(deal[name]) * len(deal) + rank for rank, name in enumerate(self._names)
        }
        self._sorted = sorted(self._keys.values())

    def of(self, member: str) -> int:
        return self._keys[member] // len(self._names)

    def change(self, member: str, by: int) -> None:
        key = self._keys[member]
        del self._sorted[bisect_left(self._sorted, key)]
        self._keys[member] = key = key + by * len(self._names)
        insort(self._sorted, key)

    def least(self, among: frozenset[str]) -> str:
        """The first of these, which must be some."""
        if 4 * len(among) >= len(self._names):
            for key in self._sorted:
                name = self._names[key % len(self._names)]
                if name in among:
                    return name
        return min(among, key=self._keys.__getitem__)


class UnevenDeal:
    """One such assignment. ``partitions``: all of them, by topic in Java's order and number."""

    def __init__(
        self,
        subscriptions: Mapping[str, Subscription],
        ownership: Ownership,
        partitions: Sequence[TopicPartition],
        racks: Racks,
    ) -> None:
        self._subscriptions = subscriptions
        self._ownership = ownership
        self._earlier = ownership.earlier
        self._racks = racks
        self._partitions = partitions
        self._wants: dict[str, frozenset[str]] = {}
        """Topic -> the members that want it, at least one."""
        self._holders: dict[TopicPartition, str] = {}
        self._revoking = False
        """Somebody loses partitions in any case, so there is no sense in sparing the others."""
        self._moves_left = _MOVES_PER_PARTITION * len(partitions)
        self._movements = Movements()
        self._assign: _Deal = {}

    def _set_up(self) -> Steps[None]:
        wants: dict[str, set[str]] = {}
        for member, said in self._subscriptions.items():
            for topic in said.topics:
                wants.setdefault(topic, set()).add(member)
            yield
        by_topic: dict[str, list[TopicPartition]] = {}
        for some in in_steps(self._partitions):
            for tp in some:
                by_topic.setdefault(tp.topic, []).append(tp)
            yield
        self._wants = {topic: frozenset(wants[topic]) for topic in by_topic}
        yield
        fewest_first = sorted(by_topic, key=lambda topic: len(self._wants[topic]))
        ordered: list[TopicPartition] = []
        for topic in fewest_first:
            ordered += by_topic[topic]
            yield
        self._partitions = ordered
        for member, owned in self._ownership.owned.items():
            self._assign[member] = self._keep(member, owned)
            yield
        self._loads = _Loads(self._assign)

    def _keep(self, member: str, owned: Iterable[TopicPartition]) -> dict[TopicPartition, None]:
        kept: dict[TopicPartition, None] = {}
        for tp in owned:
            if member in self._wants[tp.topic] and not self._racks.far(member, tp):
                kept[tp] = None
                self._holders[tp] = member
            else:
                self._revoking = True
        return kept

    def run(self) -> Steps[dict[str, list[TopicPartition]]]:
        yield from self._set_up()
        fresh = not any(self._assign.values())
        free: list[TopicPartition] = []
        for some in in_steps(self._partitions):
            free += [tp for tp in some if tp not in self._holders]
            yield
        yield from self._hand_out(free)
        sharing = frozenset().union(*(who for who in self._wants.values() if len(who) > 1))
        yield
        before: _Deal = {}
        for member, dealt in self._assign.items():
            before[member] = dict(dealt)
            yield
        if not self._revoking:  # what moves anyway can balance it, perhaps
            yield from self._balance(free)
        moved = yield from self._balance(self._partitions)
        if not fresh and moved:
            after = _imbalance(len(self._assign[member]) for member in sharing)
            if after >= _imbalance(len(before[member]) for member in sharing):
                self._assign = before
        result: dict[str, list[TopicPartition]] = {}
        for member, dealt in self._assign.items():
            result[member] = list(dealt)
            yield
        return result

    def _hand_out(self, free: Sequence[TopicPartition]) -> Steps[None]:
        far: Sequence[TopicPartition] = free
        if self._racks.matter:
            far = []
            near: dict[tuple[str, frozenset[str]], frozenset[str]] = {}
            """Topic and racks of replicas -> those of its members that are not far."""
            for tp in free:
                kind = tp.topic, self._racks.of_replicas(tp)
                if kind not in near:
                    wants = self._wants[tp.topic]
                    near[kind] = frozenset(m for m in wants if not self._racks.far(m, tp))
                if near[kind]:
                    self._give(tp, self._loads.least(near[kind]))
                else:
                    far.append(tp)
                yield
        for tp in far:
            self._give(tp, self._loads.least(self._wants[tp.topic]))
            yield

    def _give(self, tp: TopicPartition, member: str) -> None:
        self._assign[member][tp] = None
        self._holders[tp] = member
        self._loads.change(member, 1)

    # --- moving ---------------------------------------------------------------------------------

    def _balance(self, partitions: Sequence[TopicPartition]) -> Steps[bool]:
        """Move until no move helps; True if there was any."""
        movable: list[TopicPartition] = []
        for some in in_steps(partitions):
            movable += [tp for tp in some if len(self._wants[tp.topic]) > 1]
            yield
        any_moved, moved = False, True
        while moved and self._moves_left > 0:
            moved = False
            for tp in movable:
                target = self._better_holder(tp)
                if target is not None:
                    self._move(tp, target)
                    moved = any_moved = True
                yield
        return any_moved

    def _better_holder(self, tp: TopicPartition) -> str | None:
        wanted_by = self._wants[tp.topic]
        load = self._loads.of(self._holders[tp])
        earlier = self._earlier.get(tp)
        if earlier is not None and earlier in wanted_by and load > self._loads.of(earlier) + 1:
            return earlier
        least = self._loads.least(wanted_by)
        return least if load > self._loads.of(least) + 1 else None

    def _move(self, tp: TopicPartition, target: str) -> None:
        """Move the partition, or another of its topic that had better be moved."""
        self._moves_left -= 1
        tp = self._movements.better(tp, self._holders[tp], target)
        source = self._holders[tp]
        self._movements.record(tp, source, target)
        del self._assign[source][tp]
        self._loads.change(source, -1)
        self._give(tp, target)


def _imbalance(loads: Iterable[int]) -> int:
    """The sum of the differences between all pairs of them."""
    found = sorted(loads)
    return sum(load * (2 * index - len(found) + 1) for index, load in enumerate(found))
