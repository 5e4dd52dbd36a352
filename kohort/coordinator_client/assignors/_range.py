"""The range assignor, rack-aware where that can help (KIP-881)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    ClusterTopics,
    Deal,
    PartitionAssignor,
    Subscription,
    subscribers,
)
from kohort.coordinator_client.assignors._java import java_order
from kohort.types import TopicPartition


class RangeAssignor(PartitionAssignor):
    """Each topic's partitions in consecutive runs, one run a member, the first runs the longer.

    Partitions of the same number go to the same member where topics have the same number of
    partitions and the same subscribers. Where members tell their racks, a member gets partitions
    with a replica in its rack as far as the runs' lengths allow; what is left is dealt in runs.
    """

    name: ClassVar[str] = "range"

    def assign(self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]) -> Deal:
        racks = {member: s.rack for member, s in subscriptions.items() if s.rack}
        topics = [
            _Topic(topic, members, cluster, racks)
            for topic, members in subscribers(subscriptions).items()
            if cluster.partitions.get(topic, 0) > 0
        ]
        result: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        rack_aware = any(topic.racks_matter for topic in topics)
        if rack_aware:
            _deal_by_rack(topics, result)
        for topic in topics:
            topic.deal_runs(result, lambda _member, _number: True)
        if rack_aware:
            for partitions in result.values():
                partitions.sort(key=lambda tp: (java_order(tp.topic), tp.partition))
        return result


class _Topic:
    """How far the dealing of one topic has got."""

    def __init__(
        self, name: str, members: Sequence[str], cluster: ClusterTopics, racks: Mapping[str, str]
    ) -> None:
        self.name = name
        self.members = members
        self.count = cluster.partitions[name]
        self._left = dict.fromkeys(range(self.count))
        self._dealt = dict.fromkeys(members, 0)
        self._share, self._extras = divmod(self.count, len(members))
        self._member_racks = {member: racks[member] for member in members if member in racks}
        self._replica_racks = {
            number: cluster.replica_racks(TopicPartition(name, number)) for number in self._left
        }
        everywhere = frozenset().union(*self._replica_racks.values())
        self.racks_matter = not everywhere.isdisjoint(self._member_racks.values()) and any(
            found != everywhere for found in self._replica_racks.values()
        )

    def room(self, member: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._share + (self._extras > 0) - self._dealt[member])

    def near(self, member: str, number: int) -> bool:
        """A replica is in the member's rack, or the member did not name one."""
        rack = self._member_racks.get(member)
        return rack is None or rack in self._replica_racks[number]

    def deal(
        self, member: str, numbers: Sequence[int], result: dict[str, list[TopicPartition]]
    ) -> None:
        result[member].extend(TopicPartition(self.name, number) for number in numbers)
        self._dealt[member] += len(numbers)
        if self._dealt[member] > self._share:
            self._extras -= 1
        for number in numbers:
            del self._left[number]

    def deal_runs(
        self, result: dict[str, list[TopicPartition]], may: Callable[[str, int], bool]
    ) -> None:
        for member in self.members:
            run = [number for number in self._left if may(member, number)][: self.room(member)]
            if run:
                self.deal(member, run, result)


def _deal_by_rack(topics: Sequence[_Topic], result: dict[str, list[TopicPartition]]) -> None:
    """Deal what can be dealt within racks; topics that look alike are dealt in step."""
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((tuple(topic.members), topic.count), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _deal_in_step(group, result)
        elif group[0].racks_matter:
            group[0].deal_runs(result, group[0].near)


def _deal_in_step(topics: Sequence[_Topic], result: dict[str, list[TopicPartition]]) -> None:
    """Give partition n of all the topics to the first member that is near every one of them."""
    open_members = list(topics[0].members)
    for number in range(topics[0].count):
        for member in open_members:
            if all(topic.near(member, number) and topic.room(member) > 0 for topic in topics):
                for topic in topics:
                    topic.deal(member, [number], result)
                if not any(topic.room(member) > 0 for topic in topics):
                    open_members.remove(member)
                break
