"""The client side of a consumer group: the coordinator's address, the membership, the offsets.

The membership is a state machine without I/O in :mod:`._membership`. :class:`CoordinatorClient`
runs its commands.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.coordinator_client._client import CoordinatorClient
from kohort.coordinator_client._described_group import AssignmentCause
from kohort.coordinator_client.assignors import (
    ClusterTopics,
    PartitionAssignor,
    Subscription,
    resolve_assignors,
)
from kohort.coordinator_client.machine._group_callbacks import (
    GroupCallbacks,
    GroupStatistics,
    MembershipSnapshot,
)
from kohort.coordinator_client.machine._rebalance_history import RebalanceRecord
from kohort.coordinator_client.machine._state import TRANSITIONS, MemberState

__all__ = [
    "TRANSITIONS",
    "AssignmentCause",
    "ClusterTopics",
    "CoordinatorClient",
    "GroupCallbacks",
    "GroupStatistics",
    "MemberState",
    "MembershipSnapshot",
    "PartitionAssignor",
    "RebalanceRecord",
    "Subscription",
    "resolve_assignors",
]
