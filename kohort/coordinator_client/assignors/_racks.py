"""Racks of members and of replicas, as the sticky assignors use them (KIP-881)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kohort.coordinator_client.assignors._base import ClusterTopics, Subscription
from kohort.coordinator_client.assignors._slices import Steps, in_steps
from kohort.types import TopicPartition


class Racks:
    """The racks of members and partitions, unless they make no difference in this group."""

    def __init__(self) -> None:
        self.have_effect = False
        self._members: dict[str, str] = {}
        self._replicas: dict[TopicPartition, frozenset[str]] = {}
        self._local_members: dict[TopicPartition, int] = {}

    @classmethod
    def of(
        cls,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
        partitions: Sequence[TopicPartition],
    ) -> Steps[Racks]:
        """Collect the racks of a group."""
        racks = cls()
        members = {
            member: subscription.rack
            for member, subscription in subscriptions.items()
            if subscription.rack
        }
        if not members or not cluster.racks:
            return racks
        replicas: dict[TopicPartition, frozenset[str]] = {}
        for some in in_steps(partitions):
            replicas.update((tp, cluster.replica_racks(tp)) for tp in some)
            yield
        kinds = frozenset(replicas.values())
        everywhere: frozenset[str] = frozenset().union(*kinds)
        racks.have_effect = not everywhere.isdisjoint(members.values()) and kinds != {everywhere}
        if racks.have_effect:
            in_rack = Counter(members.values())
            near = {found: sum(in_rack[rack] for rack in found) for found in kinds}
            racks._members, racks._replicas = members, replicas
            for some in in_steps(partitions):
                racks._local_members.update((tp, near[replicas[tp]]) for tp in some)
                yield
        return racks

    def of_member(self, member: str) -> str | None:
        """Return the member's rack, if racks have an effect."""
        return self._members.get(member)

    def of_replicas(self, tp: TopicPartition) -> frozenset[str]:
        """Return the racks of the partition's replicas, if racks have an effect."""
        return self._replicas.get(tp, frozenset())

    def is_remote(self, member: str, tp: TopicPartition) -> bool:
        """True if the member has a rack that has no replica of the partition."""
        rack = self._members.get(member)
        return rack is not None and rack not in self._replicas[tp]

    def rarest_first(self, partitions: Sequence[TopicPartition]) -> Steps[Sequence[TopicPartition]]:
        """Sort the partitions by the number of members in their racks, fewest first."""
        if not self.have_effect:
            return partitions
        by_count: dict[int, list[TopicPartition]] = {}
        for some in in_steps(partitions):
            for tp in some:
                by_count.setdefault(self._local_members[tp], []).append(tp)
            yield
        return [tp for _, found in sorted(by_count.items()) for tp in found]
