"""The built-in assignors and the base class for a user's assignor."""

from __future__ import annotations

from kohort.coordinator_client.assignors._base import (
    Assignment,
    Assignments,
    BuiltInAssignor,
    ClusterTopics,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
    common_protocol,
    members_in_order,
)
from kohort.coordinator_client.assignors._range import RangeAssignor
from kohort.coordinator_client.assignors._resolve import BUILT_IN, is_built_in, resolve_assignors
from kohort.coordinator_client.assignors._roundrobin import RoundRobinAssignor
from kohort.coordinator_client.assignors._slices import Steps, finish, finish_in_slices
from kohort.coordinator_client.assignors._sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "BUILT_IN",
    "Assignment",
    "Assignments",
    "BuiltInAssignor",
    "ClusterTopics",
    "CooperativeStickyAssignor",
    "PartitionAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "Steps",
    "StickyAssignor",
    "Subscription",
    "common_protocol",
    "finish",
    "finish_in_slices",
    "is_built_in",
    "members_in_order",
    "resolve_assignors",
]
