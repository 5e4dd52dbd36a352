"""Records of ``__consumer_offsets`` in the formats of Kafka 4.3.1."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kohort.broker.groups._member import CommittedOffset
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.protocol import Buffer, Message, decode, encode
from kohort.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
EXPIRING_OFFSET_VERSION = 1
"""The only version with a time of expiration."""

_INT16 = struct.Struct(">h")

_KEYS: dict[int, type[Message]] = {
    0: LegacyOffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
}
_VALUES: dict[int, type[Message]] = {
    0: OffsetCommitValue,
    1: OffsetCommitValue,
    2: GroupMetadataValue,
}


def _encode(kind: int, message: Message, version: int) -> bytes:
    return _INT16.pack(kind) + encode(message, version)


def group_metadata_key(group_id: str) -> bytes:
    return _encode(2, GroupMetadataKey(group=group_id), 0)


def offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    return _encode(1, OffsetCommitKey(group=group_id, topic=topic, partition=partition), 0)


def offset_commit_value(committed: CommittedOffset) -> bytes:
    expires = committed.expire_timestamp_ms >= 0
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = EXPIRING_OFFSET_VERSION if expires else OFFSET_COMMIT_VERSION
    return _INT16.pack(version) + encode(value, version)


def group_metadata_value(group: ClassicGroup, assignments: Mapping[str, bytes]) -> bytes:
    """Return the group's record with the given assignments of its members."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    version = GROUP_METADATA_VERSION
    return _INT16.pack(version) + encode(value, version)


def append_group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    """Store the group with the given assignments."""
    value = group_metadata_value(group, assignments)
    group.env.append(group.group_id, group_metadata_key(group.group_id), value)


def append_empty_group(group: ClassicGroup, now: float) -> None:
    """Store a new group, so that it survives the loss of its coordinator."""
    value = GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=group.env.wall_ms(now)
    )
    record = _INT16.pack(GROUP_METADATA_VERSION) + encode(value, GROUP_METADATA_VERSION)
    group.env.append(group.group_id, group_metadata_key(group.group_id), record)


def read_key(data: Buffer) -> Message | None:
    """Return the key of a record, None for record types of other kinds of groups."""
    cls = _KEYS.get(_INT16.unpack_from(data)[0])
    return None if cls is None else decode(cls, 0, memoryview(data)[2:])


def read_value(key: Message, data: Buffer) -> Message:
    """Return the value of a record, in any of its versions."""
    (version,) = _INT16.unpack_from(data)
    return decode(_VALUES[key.api_key], version, memoryview(data)[2:])
