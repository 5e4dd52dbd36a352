"""The sticky assignors, which balance first and then move few partitions (KIP-54)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from itertools import repeat
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    Assignment,
    BuiltInAssignor,
    ClusterTopics,
    PartitionsByMember,
    RebalanceProtocol,
    Subscription,
)
from kohort.coordinator_client.assignors._heterogeneous import HeterogeneousAssignment
from kohort.coordinator_client.assignors._homogeneous import HomogeneousAssignment
from kohort.coordinator_client.assignors._java import hash_order, java_order
from kohort.coordinator_client.assignors._ownership import resolve_ownership
from kohort.coordinator_client.assignors._racks import Racks
from kohort.coordinator_client.assignors._slices import Steps
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
    """The common base of the sticky assignors, which differ in the encoding of a member's claim."""

    @abstractmethod
    def _claim(self, subscription: Subscription) -> Claim:
        """Return the partitions that the member owned."""

    def _assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[tuple[_Result, dict[TopicPartition, str] | None]]:
        """Return the assignment and the partitions that move from one owner to another.

        The moves are None if the assignment does not compute them.
        """
        members = {member: subscriptions[member] for member in hash_order(subscriptions)}
        topic_sets: set[frozenset[str]] = set()
        for subscription in members.values():
            topic_sets.add(frozenset(subscription.topics))
            yield
        topics = sorted(frozenset().union(*topic_sets), key=java_order)
        counts = {topic: cluster.partitions.get(topic, 0) for topic in topics}
        partitions: list[TopicPartition] = []
        for topic in topics:
            partitions += map(TopicPartition, repeat(topic), range(counts[topic]))
            yield
        if not partitions:
            return {member: [] for member in members}, {}
        claims: dict[str, Claim] = {}
        for member, subscription in members.items():
            claims[member] = self._claim(subscription)
            yield
        ownership = yield from resolve_ownership(counts, members, claims)
        racks = yield from Racks.of(cluster, members, partitions)
        if len(topic_sets) > 1:
            result = yield from HeterogeneousAssignment(members, ownership, partitions, racks).run()
            return result, None
        builder = HomogeneousAssignment(ownership, partitions, racks)
        yield from builder.run()
        return builder.result, builder.moving


class StickyAssignor(_Sticky):
    """An assignor for eager groups that balances like round-robin and keeps earlier partitions.

    A member revokes all partitions before it joins, so it sends its earlier partitions as user
    data. Use :class:`CooperativeStickyAssignor` for a new group.
    """

    name: ClassVar[str] = "sticky"
    version: ClassVar[int] = 1

    def __init__(self) -> None:
        self._assigned: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        assignment, _ = yield from self._assign(cluster, subscriptions)
        return assignment

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        if self._assigned is None:
            return None
        return write_claim(self._assigned, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._assigned = assignment.partitions
        self._generation = metadata.generation_id

    def _claim(self, subscription: Subscription) -> Claim:
        return read_claim(subscription.user_data)


class CooperativeStickyAssignor(_Sticky):
    """A sticky assignor with which members keep reading the partitions that do not move (KIP-429).

    A move takes two rebalances. In the first the owner revokes the partition, in the second the new
    owner gets it. A group is still eager while its members also offer an eager assignor. Then it
    assigns like sticky without owned partitions.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        assignment, moving = yield from self._assign(cluster, subscriptions)
        if moving is None:
            moving = yield from _find_moves(assignment, subscriptions)
        for tp, member in moving.items():
            assignment[member].remove(tp)
            yield
        return assignment

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return write_generation(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._generation = metadata.generation_id

    def _claim(self, subscription: Subscription) -> Claim:
        if subscription.generation != NO_GENERATION:
            return Claim(subscription.owned, subscription.generation)
        return Claim(subscription.owned, read_generation(subscription.user_data))


def _find_moves(
    assignment: PartitionsByMember, subscriptions: Mapping[str, Subscription]
) -> Steps[dict[TopicPartition, str]]:
    """Return the partitions that one member gains and another one loses."""
    added: dict[TopicPartition, str] = {}
    lost: set[TopicPartition] = set()
    for member, partitions in assignment.items():
        owned = frozenset(subscriptions[member].owned)
        assigned = frozenset(partitions)
        added.update(dict.fromkeys(assigned - owned, member))
        lost |= owned - assigned
        yield
    return {tp: member for tp, member in added.items() if tp in lost}
