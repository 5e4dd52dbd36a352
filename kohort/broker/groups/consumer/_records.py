"""Records of consumer groups in ``__consumer_offsets``: types 3 to 8 and 16.

Each function changes the group and appends the record of the change. :mod:`_loading` reads the
records.
"""

from __future__ import annotations

import struct

from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import (
    ConsumerMember,
    PartitionEpochs,
    ResolvedRegex,
)
from kohort.protocol import Message, encode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_INT16 = struct.Struct(">h")


def _append(group: ConsumerGroup, key: Message, value: Message | None) -> None:
    raw_key = _INT16.pack(key.api_key) + encode(key, 0)
    raw_value = None if value is None else _INT16.pack(0) + encode(value, 0)
    group.env.append(group.group_id, raw_key, raw_value)


# The group


def set_epoch(group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    """Store the group epoch and the hash of the subscribed topics."""
    group.epoch = epoch
    group.metadata_hash = metadata_hash
    append_epoch(group)


def append_epoch(group: ConsumerGroup) -> None:
    """Append the record of the group epoch."""
    key = ConsumerGroupMetadataKey(group_id=group.group_id)
    value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    _append(group, key, value)


def set_assignment_epoch(group: ConsumerGroup, epoch: int, at_ms: int) -> None:
    """Store the epoch of the target assignment and the time when it was computed."""
    group.assignment_epoch = epoch
    group.assigned_at_ms = at_ms
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=at_ms
    )
    _append(group, key, value)


def set_regex(group: ConsumerGroup, pattern: str, resolved: ResolvedRegex) -> None:
    """Store the topics of a pattern."""
    group.regexes[pattern] = resolved
    key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=pattern)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    _append(group, key, value)


def delete_regex(group: ConsumerGroup, pattern: str) -> None:
    """Delete a pattern that no member subscribes to."""
    group.regexes.pop(pattern, None)
    key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=pattern)
    _append(group, key, None)


def delete_group_records(group: ConsumerGroup) -> None:
    """Append the tombstones of a group and of all its members; the group itself stays."""
    group_id = group.group_id
    for member_id in group.members:
        _append(
            group,
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
            None,
        )
    for member_id in group.members:
        _append(
            group,
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
            None,
        )
    _append(group, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    for member_id in group.members:
        _append(group, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
    for pattern in group.regexes:
        _append(
            group,
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
            None,
        )
    _append(group, ConsumerGroupPartitionMetadataKey(group_id=group_id), None)
    _append(group, ConsumerGroupMetadataKey(group_id=group_id), None)


# Members


def set_member(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Store the subscription of a member."""
    group.members.put(member)
    classic = None
    if member.classic is not None:
        cls = ConsumerGroupMemberMetadataValue
        classic = cls.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                cls.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.classic.protocols
            ],
        )
    key = ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    _append(group, key, value)


def set_target(group: ConsumerGroup, member_id: str, target: PartitionSets) -> None:
    """Store the target assignment of a member."""
    group.targets[member_id] = target
    cls = ConsumerGroupTargetAssignmentMemberValue
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    value = cls(
        topic_partitions=[
            cls.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    _append(group, key, value)


def set_current(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Store the epoch, the state and the partitions of a member."""
    group.members.put(member)
    key = ConsumerGroupCurrentMemberAssignmentKey(
        group_id=group.group_id, member_id=member.member_id
    )
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    _append(group, key, value)


def _topic_partitions(
    partitions: PartitionEpochs,
) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    cls = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        cls(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for topic_id, epochs in partitions.items()
    ]


def delete_member(group: ConsumerGroup, member_id: str) -> None:
    """Delete a member with its assignments."""
    group.members.remove(member_id)
    group.targets.pop(member_id, None)
    group_id = group.group_id
    for key in (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    ):
        _append(group, key, None)
