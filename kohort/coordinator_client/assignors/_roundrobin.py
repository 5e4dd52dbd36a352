"""The round-robin assignor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kohort.coordinator_client.assignors._base import (
    ClusterTopics,
    Deal,
    PartitionAssignor,
    Subscription,
    members_in_order,
)
from kohort.coordinator_client.assignors._java import java_order
from kohort.types import TopicPartition


class RoundRobinAssignor(PartitionAssignor):
    """All partitions of all topics in one row, dealt to the members in turn.

    A member that does not subscribe to a topic is passed over for it.
    """

    name: ClassVar[str] = "roundrobin"

    def assign(self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]) -> Deal:
        members = members_in_order(subscriptions)
        wants = {member: frozenset(subscriptions[member].topics) for member in members}
        result: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turn = 0
        for topic in sorted(frozenset().union(*wants.values()), key=java_order):
            for number in range(cluster.partitions.get(topic, 0)):
                while topic not in wants[members[turn % len(members)]]:
                    turn += 1
                result[members[turn % len(members)]].append(TopicPartition(topic, number))
                turn += 1
        return result
