"""Who gets which partition: the assignors, and the base class for one's own."""

from __future__ import annotations

from kohort.coordinator_client.assignors._base import (
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
    common_protocol,
    members_in_order,
)
from kohort.coordinator_client.assignors._range import RangeAssignor
from kohort.coordinator_client.assignors._resolve import BUILT_IN, resolve_assignors
from kohort.coordinator_client.assignors._roundrobin import RoundRobinAssignor

__all__ = [
    "BUILT_IN",
    "Assignments",
    "ClusterTopics",
    "PartitionAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "Subscription",
    "common_protocol",
    "members_in_order",
    "resolve_assignors",
]
