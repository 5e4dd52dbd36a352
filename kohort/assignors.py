"""Kafka's assignors and the base class for your own assignor.

Pass names, classes or instances in ``partition_assignment_strategy``.
"""

from __future__ import annotations

from kohort.coordinator_client.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    CooperativeStickyAssignor,
    PartitionAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)

__all__ = [
    "Assignment",
    "Assignments",
    "ClusterTopics",
    "CooperativeStickyAssignor",
    "PartitionAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
]
