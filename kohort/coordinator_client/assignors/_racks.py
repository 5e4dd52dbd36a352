"""Racks of members and of replicas, as the sticky assignors use them (KIP-881)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kohort.coordinator_client.assignors._base import ClusterTopics, Subscription
from kohort.types import TopicPartition


class Racks:
    """Which members are near which partitions. Without an effect where that makes no difference."""

    def __init__(
        self,
        cluster: ClusterTopics,
        subscriptions: Mapping[str, Subscription],
        partitions: Iterable[TopicPartition],
    ) -> None:
        members = {member: said.rack for member, said in subscriptions.items() if said.rack}
        replicas = {tp: cluster.replica_racks(tp) for tp in partitions} if members else {}
        everywhere: frozenset[str] = frozenset().union(*replicas.values())
        self.matter = not everywhere.isdisjoint(members.values()) and any(
            found != everywhere for found in replicas.values()
        )
        self._members = members if self.matter else {}
        self._replicas = replicas if self.matter else {}
        in_rack = Counter(members.values())
        self._near = {
            tp: sum(in_rack[rack] for rack in found) for tp, found in self._replicas.items()
        }

    def far(self, member: str, tp: TopicPartition) -> bool:
        """The member has a rack, and no replica is in it."""
        rack = self._members.get(member)
        return rack is not None and rack not in self._replicas[tp]

    def hardest_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those with the fewest members in their racks first."""
        if not self.matter:
            return list(partitions)
        return sorted(partitions, key=self._near.__getitem__)

    def next_near(self, tp: TopicPartition, members: Sequence[str], start: int) -> int | None:
        """Index of the first member from ``start`` on, around the end, with a rack of ``tp``'s."""
        racks = self._replicas[tp]
        for step in range(len(members)):
            index = (start + step) % len(members)
            if self._members.get(members[index]) in racks:
                return index
        return None
