"""The range assignor, rack-aware where that can help (KIP-881)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    BuiltInAssignor,
    ClusterTopics,
    PartitionsByMember,
    Subscription,
    subscribers,
)
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._slices import Steps
from kohort.types import TopicPartition

_Result = dict[str, list[TopicPartition]]


class RangeAssignor(BuiltInAssignor):
    """An assignor that gives each member one consecutive range of each topic's partitions.

    The first members get the longer ranges. A member gets the same partition numbers of all topics
    that have the same subscribers and the same number of partitions.

    If members have racks, each first gets partitions with a replica in its rack, up to the length
    of its range. The remaining partitions are assigned in ranges.
    """

    name: ClassVar[str] = "range"

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        found = yield from subscribers(subscriptions)
        members_of = {
            topic: who for topic, who in found.items() if cluster.partitions.get(topic, 0)
        }
        result: _Result = {member: [] for member in subscriptions}
        racks = {member: s.rack for member, s in subscriptions.items() if s.rack}
        topics: list[_TopicState] = []
        if racks and cluster.racks:
            for topic, members in members_of.items():
                topics.append(_TopicState(topic, members, cluster, racks))
                yield
        if not any(topic.racks_matter for topic in topics):
            for topic, members in members_of.items():
                _assign_ranges(topic, members, cluster.partitions[topic], result)
                yield
            return result
        yield from _assign_by_rack(topics, result)
        for each in topics:
            yield from each.assign_ranges(result)
        order = {topic: rank for rank, topic in enumerate(sorted(members_of, key=java_order))}
        for partitions in result.values():
            partitions.sort(key=lambda tp: (order[tp.topic], tp.partition))
            yield
        return result


def _assign_ranges(topic: str, members: Sequence[str], count: int, result: _Result) -> None:
    """Assign a topic without racks."""
    quota, extras = divmod(count, len(members))
    start = 0
    for member in members:
        end = start + quota + (extras > 0)
        extras -= 1
        if start == end:
            break  # there are more members than partitions
        result[member].extend(map(TopicPartition, repeat(topic), range(start, end)))
        start = end


class _TopicState:
    """The assignment of one topic while racks have an effect."""

    def __init__(
        self, name: str, members: Sequence[str], cluster: ClusterTopics, racks: Mapping[str, str]
    ) -> None:
        self.name = name
        self.members = members
        self.count = cluster.partitions[name]
        self._unassigned = dict.fromkeys(range(self.count))
        self._assigned_counts = dict.fromkeys(members, 0)
        self._quota, self._extras = divmod(self.count, len(members))
        self.member_racks = {member: racks[member] for member in members if member in racks}
        self.replica_racks = [
            cluster.replica_racks(TopicPartition(name, number)) for number in self._unassigned
        ]
        everywhere = frozenset().union(*self.replica_racks)
        self.racks_matter = not everywhere.isdisjoint(self.member_racks.values()) and any(
            found != everywhere for found in self.replica_racks
        )

    def capacity(self, member: str) -> int:
        """Return the number of partitions that the member may still get. It never grows."""
        return max(0, self._quota + (self._extras > 0) - self._assigned_counts[member])

    def rack_filter(self, member: str) -> Callable[[int], bool]:
        """Return a predicate for partitions in the member's rack. Without a rack it is True."""
        rack = self.member_racks.get(member)
        return lambda number: rack is None or rack in self.replica_racks[number]

    def assign(self, member: str, numbers: Sequence[int], result: _Result) -> None:
        result[member].extend(TopicPartition(self.name, number) for number in numbers)
        self._assigned_counts[member] += len(numbers)
        if self._assigned_counts[member] > self._quota:
            self._extras -= 1
        for number in numbers:
            del self._unassigned[number]

    def assign_ranges(self, result: _Result, *, within_racks: bool = False) -> Steps[None]:
        """Assign the rest in ranges. ``within_racks`` limits them to each member's rack."""
        for member in self.members:
            capacity = self.capacity(member)
            if capacity:
                left = (
                    filter(self.rack_filter(member), self._unassigned)
                    if within_racks
                    else iter(self._unassigned)
                )
                if run := list(islice(left, capacity)):
                    self.assign(member, run, result)
            yield


def _assign_by_rack(topics: Sequence[_TopicState], result: _Result) -> Steps[None]:
    """Assign partitions to members in their racks. Co-partitioned topics are assigned together."""
    alike: dict[tuple[tuple[str, ...], int], list[_TopicState]] = {}
    for topic in topics:
        alike.setdefault((tuple(topic.members), topic.count), []).append(topic)
        yield
    for group in alike.values():
        if len(group) > 1:
            yield from _assign_copartitioned(group, result)
        elif group[0].racks_matter:
            yield from group[0].assign_ranges(result, within_racks=True)


def _assign_copartitioned(topics: Sequence[_TopicState], result: _Result) -> Steps[None]:
    """Assign partition n of all topics to the first member with a replica of each in its rack."""
    first = topics[0]
    queues: dict[str | None, deque[tuple[int, str]]] = {}
    """Members with capacity by rack, each with its position in the order of members."""
    no_members: deque[tuple[int, str]] = deque()
    for place, member in enumerate(first.members):
        queues.setdefault(first.member_racks.get(member), deque()).append((place, member))
    yield
    for number in range(first.count):
        racks = frozenset.intersection(*(topic.replica_racks[number] for topic in topics))
        heads = []
        for rack in (None, *racks):
            queue = queues.get(rack, no_members)
            while queue and not all(topic.capacity(queue[0][1]) > 0 for topic in topics):
                queue.popleft()
            if queue:
                heads.append(queue[0])
        if heads:
            member = min(heads)[1]
            for topic in topics:
                topic.assign(member, [number], result)
        yield
