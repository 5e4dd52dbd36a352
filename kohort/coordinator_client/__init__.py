"""The client side of a consumer group: the coordinator's address, the membership, the offsets.

The membership is a state machine without I/O in :mod:`._membership`. :class:`CoordinatorClient`
runs its commands.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.coordinator_client._client import CoordinatorClient
from kohort.coordinator_client._coordinator import (
    CoordinatorConnection,
    RequestForm,
    send_supported,
)
from kohort.coordinator_client._described_group import AssignmentCause
from kohort.coordinator_client._requests import REASON_LENGTH
from kohort.coordinator_client.assignors import (
    ClusterTopics,
    PartitionAssignor,
    Subscription,
    resolve_assignors,
)
from kohort.coordinator_client.classic._embedded_protocol import (
    PROTOCOL_TYPE,
    partitions_by_topic,
    read_assignment,
    read_subscription,
)
from kohort.coordinator_client.machine._group_callbacks import (
    GroupCallbacks,
    GroupStatistics,
    MembershipSnapshot,
)
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._rebalance_history import RebalanceRecord
from kohort.coordinator_client.machine._state import TRANSITIONS, MemberState
from kohort.coordinator_client.offsets._commit_rules import OUTSIDER
from kohort.coordinator_client.offsets._offset_messages import (
    commit_codes,
    commit_forms,
    fetch_forms,
    fetched_offsets,
)

__all__ = [
    "OUTSIDER",
    "PROTOCOL_TYPE",
    "REASON_LENGTH",
    "TRANSITIONS",
    "AssignmentCause",
    "ClusterTopics",
    "CoordinatorClient",
    "CoordinatorConnection",
    "GroupCallbacks",
    "GroupStatistics",
    "MemberState",
    "MembershipSnapshot",
    "PartitionAssignor",
    "RebalanceRecord",
    "RequestForm",
    "Subscription",
    "commit_codes",
    "commit_forms",
    "describe",
    "fetch_forms",
    "fetched_offsets",
    "partitions_by_topic",
    "read_assignment",
    "read_subscription",
    "resolve_assignors",
    "send_supported",
]
