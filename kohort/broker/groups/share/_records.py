"""Records of share groups in ``__consumer_offsets``, types 10 to 15.

Each function changes the group and appends the record of the change. ``load_share_groups()`` reads
the records back, in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups.share._group import (
    ShareGroup,
    ShareMember,
    StateTopic,
)
from kohort.errors import MessageDecodeError
from kohort.protocol import Buffer, Message, decode, encode
from kohort.protocol.messages import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

_INT16 = struct.Struct(">h")
_GROUP_RECORD = 11
"""Type of the record of the group epoch. Its tombstone deletes the group."""
_MEMBER_RECORD = 10

_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    _MEMBER_RECORD: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    _GROUP_RECORD: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
"""Record type -> its key and value"""


def _append(group: ShareGroup, key: Message, value: Message | None) -> None:
    raw_key = _INT16.pack(key.api_key) + encode(key, 0)
    raw_value = None if value is None else _INT16.pack(0) + encode(value, 0)
    group.env.append(group.group_id, raw_key, raw_value)


# Writing


def set_epoch(group: ShareGroup, epoch: int, metadata_hash: int) -> None:
    """Store the group epoch and the hash of the subscribed topics."""
    group.epoch = epoch
    group.metadata_hash = metadata_hash
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _append(group, ShareGroupMetadataKey(group_id=group.group_id), value)


def set_assignment_epoch(group: ShareGroup, epoch: int, at_ms: int) -> None:
    """Store the epoch of the target assignment and the time when it was computed."""
    group.assignment_epoch = epoch
    group.assigned_at_ms = at_ms
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=at_ms
    )
    _append(group, ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)


def set_member(group: ShareGroup, member: ShareMember) -> None:
    """Store the subscription of a member."""
    group.members[member.member_id] = member
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    key = ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    _append(group, key, value)


def set_target(group: ShareGroup, member_id: str, target: PartitionSets) -> None:
    """Store the target assignment of a member."""
    group.targets[member_id] = target
    cls = ShareGroupTargetAssignmentMemberValue
    value = cls(topic_partitions=_topic_partitions(cls.TopicPartitions, target))
    key = ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    _append(group, key, value)


def set_current(group: ShareGroup, member: ShareMember) -> None:
    """Store the epoch and the partitions of a member."""
    group.members[member.member_id] = member
    cls = ShareGroupCurrentMemberAssignmentValue
    value = cls(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=_topic_partitions(cls.TopicPartitions, member.assigned),
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    _append(group, key, value)


def _topic_partitions(cls: Any, partitions: PartitionSets) -> list[Any]:
    return [
        cls(topic_id=topic_id, partitions=sorted(partitions[topic_id])) for topic_id in partitions
    ]


def delete_member(group: ShareGroup, member_id: str) -> None:
    """Delete a member with its assignments."""
    group.members.pop(member_id, None)
    group.targets.pop(member_id, None)
    group_id = group.group_id
    for key in (
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    ):
        _append(group, key, None)


def append_states(group: ShareGroup) -> None:
    """Store which partitions have a state, get one, or lose it."""
    cls = ShareGroupStatePartitionMetadataValue

    def listed(topics: Mapping[bytes, StateTopic]) -> list[Any]:
        return [
            cls.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
            )
            for topic_id, topic in topics.items()
        ]

    value = cls(
        initializing_topics=listed(group.initializing),
        initialized_topics=listed(group.initialized),
        deleting_topics=[
            cls.TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in group.deleting.items()
        ],
    )
    _append(group, ShareGroupStatePartitionMetadataKey(group_id=group.group_id), value)


def delete_group_records(group: ShareGroup) -> None:
    """Append the tombstones of a group without members."""
    group_id = group.group_id
    _append(group, ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    _append(group, ShareGroupStatePartitionMetadataKey(group_id=group_id), None)
    _append(group, ShareGroupMetadataKey(group_id=group_id), None)


# Reading


def load_share_groups(
    records: Iterable[tuple[Buffer | None, Buffer | None]], env: GroupEnvironment, now: float
) -> dict[str, ShareGroup]:
    """Return the share groups that the records store, in order; their sessions start now.

    Records of other kinds of groups and records that do not decode are omitted.
    """
    groups: dict[str, ShareGroup] = {}
    for raw_key, raw_value in records:
        if raw_key is None:
            continue
        try:
            (kind,) = _INT16.unpack_from(raw_key)
            if kind in _RECORDS:
                _replay(groups, env, kind, raw_key, raw_value)
        except (MessageDecodeError, struct.error):
            continue
    for group in groups.values():
        group.start_timers(now)
    return groups


def _replay(
    groups: dict[str, ShareGroup],
    env: GroupEnvironment,
    kind: int,
    raw_key: Buffer,
    raw_value: Buffer | None,
) -> None:
    key_class, value_class = _RECORDS[kind]
    key: Any = decode(key_class, 0, memoryview(raw_key)[2:])
    value: Any = None
    if raw_value is not None:
        (version,) = _INT16.unpack_from(raw_value)
        value = decode(value_class, version, memoryview(raw_value)[2:])
    group = groups.get(key.group_id)
    if value is None and (group is None or kind == _GROUP_RECORD):
        groups.pop(key.group_id, None)
        return
    if group is None:
        group = groups[key.group_id] = ShareGroup(key.group_id, env)
    _REPLAYS[kind](group, key, value)


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


def _replay_member(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    group.members[key.member_id] = replace(
        _member(group, key.member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )


def _replay_group(group: ShareGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _replay_assignment(group: ShareGroup, key: Any, value: Any) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assigned_at_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = _partition_sets(value.topic_partitions)


def _replay_current(group: ShareGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.members[key.member_id] = replace(
            _member(group, key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_partition_sets(value.assigned_partitions),
        )
    elif key.member_id in group.members:
        # As with consumer groups, only the tombstone of the subscription removes a member.
        member = group.members[key.member_id]
        group.members[key.member_id] = replace(member, epoch=-1, previous_epoch=-1, assigned={})


def _partition_sets(topics: Iterable[Any]) -> PartitionSets:
    return {bytes(each.topic_id): frozenset(each.partitions) for each in topics}


def _replay_states(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.initializing, group.initialized, group.deleting = {}, {}, {}
        return
    group.initializing = _state_topics(value.initializing_topics)
    group.initialized = _state_topics(value.initialized_topics)
    group.deleting = {bytes(each.topic_id): each.topic_name for each in value.deleting_topics}


def _state_topics(topics: Iterable[Any]) -> dict[bytes, StateTopic]:
    return {
        bytes(each.topic_id): StateTopic(each.topic_name, frozenset(each.partitions))
        for each in topics
    }


_REPLAYS: dict[int, Callable[[ShareGroup, Any, Any], None]] = {
    _MEMBER_RECORD: _replay_member,
    _GROUP_RECORD: _replay_group,
    12: _replay_assignment,
    13: _replay_target,
    14: _replay_current,
    15: _replay_states,
}
