"""The requests of the membership's commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.config import GroupConfig
from kohort.coordinator_client._coordinator import RequestForm
from kohort.coordinator_client.assignors import Subscription
from kohort.coordinator_client.classic._embedded_protocol import PROTOCOL_TYPE, write_subscription
from kohort.coordinator_client.consumer._member import by_topic
from kohort.coordinator_client.machine._commands import (
    ConsumerHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_FIRST_REGEX = 1
"""First version of ConsumerGroupHeartbeat with a pattern that the brokers evaluate."""
REASON_LENGTH = 255
"""Characters of a reason that the coordinator accepts (KIP-800)."""


def member_subscription(
    command: JoinGroup, user_data: bytes | None, rack: str | None
) -> Subscription:
    """Return the member's metadata, sorted so that the same metadata has the same bytes."""
    return Subscription(
        topics=tuple(sorted(command.topics)),
        user_data=user_data,
        owned=tuple(sorted(command.owned)),
        generation=command.generation,
        rack=rack,
    )


def join_forms(
    config: GroupConfig, command: JoinGroup, subscriptions: Mapping[str, Subscription]
) -> Sequence[RequestForm[JoinGroupResponse]]:
    """Return the JoinGroup request. ``subscriptions`` has the metadata by assignor, best first."""
    message = JoinGroupRequest(
        group_id=config.group_id or "",
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        member_id=command.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(
                name=name, metadata=write_subscription(subscription)
            )
            for name, subscription in subscriptions.items()
        ],
        reason=command.reason[:REASON_LENGTH],
    )
    return [RequestForm(message)]


def sync_forms(
    config: GroupConfig, command: SyncGroup, blobs: Mapping[str, bytes]
) -> Sequence[RequestForm[SyncGroupResponse]]:
    """Return the SyncGroup request. ``blobs`` maps member ids to encoded assignments."""
    message = SyncGroupRequest(
        group_id=config.group_id or "",
        generation_id=command.generation,
        member_id=command.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=command.protocol,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=blob)
            for member_id, blob in blobs.items()
        ],
    )
    return [RequestForm(message)]


def heartbeat_forms(
    config: GroupConfig, command: Heartbeat
) -> Sequence[RequestForm[HeartbeatResponse]]:
    message = HeartbeatRequest(
        group_id=config.group_id or "",
        generation_id=command.generation,
        member_id=command.member_id,
        group_instance_id=config.group_instance_id,
    )
    return [RequestForm(message)]


def consumer_heartbeat_forms(
    config: GroupConfig, command: ConsumerHeartbeat
) -> Sequence[RequestForm[ConsumerGroupHeartbeatResponse]]:
    """Return the ConsumerGroupHeartbeat request. Fields that the command leaves out are null."""
    owned = None
    if command.owned is not None:
        owned = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(command.owned).items()
        ]
    message = ConsumerGroupHeartbeatRequest(
        group_id=config.group_id or "",
        member_id=command.member_id,
        member_epoch=command.epoch,
        instance_id=config.group_instance_id,
        rack_id=(config.client_rack or None) if command.is_full else None,
        rebalance_timeout_ms=config.rebalance_timeout_ms if command.is_full else -1,
        subscribed_topic_names=None if command.topics is None else sorted(command.topics),
        subscribed_topic_regex=command.regex,
        server_assignor=config.group_remote_assignor if command.is_full else None,
        topic_partitions=owned,
    )
    return [RequestForm(message, min_version=None if command.regex is None else _FIRST_REGEX)]


def describe_forms(config: GroupConfig) -> Sequence[RequestForm[DescribeGroupsResponse]]:
    return [RequestForm(DescribeGroupsRequest(groups=[config.group_id or ""]))]


def leave_forms(
    config: GroupConfig, command: LeaveGroup
) -> Sequence[RequestForm[LeaveGroupResponse]]:
    """Return the LeaveGroup request. It names one member before version 3, then a list."""
    group_id = config.group_id or ""
    member = LeaveGroupRequest.MemberIdentity(
        member_id=command.member_id,
        group_instance_id=config.group_instance_id,
        reason=command.reason[:REASON_LENGTH],
    )
    return [
        RequestForm(LeaveGroupRequest(group_id=group_id, members=[member]), min_version=3),
        RequestForm(
            LeaveGroupRequest(group_id=group_id, member_id=command.member_id), max_version=2
        ),
    ]
