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
    """All partitions of all topics in one row, dealt to the members in turn.

    A member that does not subscribe to a topic is passed over for it.
    """

    name: ClassVar[str] = "roundrobin"

    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        members = members_in_order(subscriptions)
        result: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turns: dict[str, list[int]] = {}
        """Topic -> the turns of its subscribers, in one round of all members."""
        for turn, member in enumerate(members):
            for topic in dict.fromkeys(subscriptions[member].topics):
                turns.setdefault(topic, []).append(turn)
            yield
        turn = 0
        for topic in sorted(turns, key=java_order):
            wanted_at = turns[topic]
            at = bisect_left(wanted_at, turn)
            for number in range(cluster.partitions.get(topic, 0)):
                if at == len(wanted_at):
                    at = 0
                turn = wanted_at[at]
                result[members[turn]].append(TopicPartition(topic, number))
                turn, at = turn + 1, at + 1
                if number % STEP == 0:
                    yield
        return result
