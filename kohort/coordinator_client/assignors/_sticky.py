"""The sticky assignors: balanced first, then with as few partitions moved as possible (KIP-54)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from itertools import repeat
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    Assignment,
    BuiltInAssignor,
    ClusterTopics,
    Deal,
    RebalanceProtocol,
    Subscription,
)
from kohort.coordinator_client.assignors._claims import settle
from kohort.coordinator_client.assignors._even import EvenDeal
from kohort.coordinator_client.assignors._java import hash_order, java_order
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps
from kohort.coordinator_client.assignors._uneven import UnevenDeal
from kohort.coordinator_client.assignors._user_data import (
    NO_GENERATION,
    Claim,
    read_claim,
    read_generation,
    write_claim,
    write_generation,
)
from kohort.types import ConsumerGroupMetadata, TopicPartition

_Result = dict[str, list[TopicPartition]]


class _Sticky(BuiltInAssignor):
    """What the two have in common; they differ in where a member's claim stands."""

    @abstractmethod
    def _claim(self, said: Subscription) -> Claim:
        """What the member owned."""

    def _assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[tuple[_Result, dict[TopicPartition, str] | None]]:
        """The deal, and what in it goes from one owner to another; None: to be found out."""
        members = {member: subscriptions[member] for member in hash_order(subscriptions)}
        wanted: set[frozenset[str]] = set()
        for said in members.values():
            wanted.add(frozenset(said.topics))
            yield
        topics = sorted(frozenset().union(*wanted), key=java_order)
        counts = {topic: cluster.partitions.get(topic, 0) for topic in topics}
        partitions: list[TopicPartition] = []
        for topic in topics:
            partitions += map(TopicPartition, repeat(topic), range(counts[topic]))
            yield
        if not partitions:
            return {member: [] for member in members}, {}
        claims: dict[str, Claim] = {}
        for member, said in members.items():
            claims[member] = self._claim(said)
            yield
        ownership = yield from settle(counts, members, claims)
        racks = yield from Racks.of(cluster, members, partitions)
        if len(wanted) > 1:
            result = yield from UnevenDeal(members, ownership, partitions, racks).run()
            return result, None
        even = EvenDeal(ownership, partitions, racks)
        yield from even.run()
        return even.result, even.moving


class StickyAssignor(_Sticky):
    """As even as round-robin, and members keep what they had; for eager groups.

    A member gives everything up before it joins, so what it had travels in its user data.
    :class:`CooperativeStickyAssignor` is what a new group should use.
    """

    name: ClassVar[str] = "sticky"
    version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._assigned: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[Deal]:
        deal, _ = yield from self._assign(cluster, subscriptions)
        return deal

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        if self._assigned is None:
            return None
        return write_claim(self._assigned, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._assigned = assignment.partitions
        self._generation = metadata.generation_id

    def _claim(self, said: Subscription) -> Claim:
        return read_claim(said.user_data)


class CooperativeStickyAssignor(_Sticky):
    """As :class:`StickyAssignor`, and only the partitions that move stop being read (KIP-429).

    What moves is dealt in two rebalances: in the first its owner gives it up, in the second the
    new one gets it. In a group that is eager still, because a member also offers an eager
    assignor, it deals like sticky with nothing owned.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[Deal]:
        deal, moving = yield from self._assign(cluster, subscriptions)
        if moving is None:
            moving = yield from _find_moving(deal, subscriptions)
        for tp, member in moving.items():
            deal[member].remove(tp)
            yield
        return deal

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return write_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._generation = metadata.generation_id

    def _claim(self, said: Subscription) -> Claim:
        if said.generation != NO_GENERATION:
            return Claim(said.owned, said.generation)
        return Claim(said.owned, read_generation(said.user_data))


def _find_moving(
    deal: Deal, subscriptions: Mapping[str, Subscription]
) -> Steps[dict[TopicPartition, str]]:
    """What one member gets new that another one loses."""
    added: dict[TopicPartition, str] = {}
    lost: set[TopicPartition] = set()
    for member, dealt in deal.items():
        owned = frozenset(subscriptions[member].owned)
        given = frozenset(dealt)
        added.update(dict.fromkeys(given - owned, member))
        lost |= owned - given
        yield
    return {tp: member for tp, member in added.items() if tp in lost}
