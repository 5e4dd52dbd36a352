"""The round-robin assignor."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    BuiltInAssignor,
    ClusterTopics,
    PartitionsByMember,
    Subscription,
    members_in_order,
)
from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._slices import STEP, Steps
from kohort.types import TopicPartition


class RoundRobinAssignor(BuiltInAssignor):
    """An assignor that assigns all partitions of all topics to the members in turn.

    It skips a member for topics that the member does not subscribe to.
    """

    name: ClassVar[str] = "roundrobin"
    uses_racks: ClassVar[bool] = False

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        members = members_in_order(subscriptions)
        result: dict[str, list[TopicPartition]] = {member: [] for member in members}
        indexes_of: dict[str, list[int]] = {}
        """Indexes of a topic's subscribers in the order of members, by topic."""
        for index, member in enumerate(members):
            for topic in dict.fromkeys(subscriptions[member].topics):
                indexes_of.setdefault(topic, []).append(index)
            yield
        index = 0
        for topic in sorted(indexes_of, key=java_order):
            indexes = indexes_of[topic]
            at = bisect_left(indexes, index)
            for number in range(cluster.partitions.get(topic, 0)):
                if at == len(indexes):
                    at = 0
                index = indexes[at]
                result[members[index]].append(TopicPartition(topic, number))
                index, at = index + 1, at + 1
                if number % STEP == 0:
                    yield
        return result
