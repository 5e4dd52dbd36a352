"""Assignors are names, classes and instances."""

from __future__ import annotations

from collections.abc import Mapping

from kohort import KafkaConsumer, TopicPartition
from kohort.assignors import (
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    RangeAssignor,
    Subscription,
)


class First(PartitionAssignor):
    name = "first"

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        first = min(subscriptions)
        return {first: [TopicPartition(topic, 0) for topic in cluster.topics()]}


KafkaConsumer(group_id="g", partition_assignment_strategy=[First, RangeAssignor(), "roundrobin"])
KafkaConsumer(group_id="g", partition_assignment_strategy="cooperative-sticky")
