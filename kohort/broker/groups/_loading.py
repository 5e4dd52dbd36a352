"""Loading of groups and offsets from the records of ``__consumer_offsets``."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._group import ClassicGroup
from kohort.broker.groups._member import CommittedOffset, Member
from kohort.broker.groups._records import read_key, read_value
from kohort.broker.groups._state import GroupState
from kohort.errors import MessageDecodeError
from kohort.protocol import Buffer, Message
from kohort.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)


def load_groups(
    records: Iterable[tuple[Buffer | None, Buffer | None]], env: GroupEnvironment, now: float
) -> dict[str, ClassicGroup]:
    """Return the groups that the records store, in order; their sessions start now.

    Records of other kinds of groups and records that do not decode are omitted.
    """
    groups: dict[str, ClassicGroup] = {}
    for raw_key, raw_value in records:
        if raw_key is None:
            continue
        try:
            key = read_key(raw_key)
            value = None if key is None or raw_value is None else read_value(key, raw_value)
        except (MessageDecodeError, struct.error):
            continue
        if key is not None:
            _replay(groups, env, key, value)
    for group in groups.values():
        for member in group.members.values():
            group.restart_session(member, now)
    return groups


def stored_offset(value: OffsetCommitValue) -> CommittedOffset:
    """Return the committed offset that a record stores."""
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        topic_id=bytes(value.topic_id),
        expire_timestamp_ms=value.expire_timestamp,
    )


def _replay(
    groups: dict[str, ClassicGroup], env: GroupEnvironment, key: Message, value: Message | None
) -> None:
    if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        topic_partition = key.topic, key.partition
        if isinstance(value, OffsetCommitValue):
            if key.group not in groups:
                groups[key.group] = ClassicGroup(key.group, env)
            groups[key.group].offsets[topic_partition] = stored_offset(value)
        elif key.group in groups:
            groups[key.group].offsets.pop(topic_partition, None)
    elif isinstance(key, GroupMetadataKey):
        before = groups.pop(key.group, None)
        if isinstance(value, GroupMetadataValue):
            group = groups[key.group] = _restore(key.group, env, value)
            if before is not None:
                group.offsets = before.offsets


def _restore(group_id: str, env: GroupEnvironment, value: GroupMetadataValue) -> ClassicGroup:
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = ClassicGroup(group_id, env, state)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader = value.leader
    group.state_timestamp_ms = value.current_state_timestamp
    for stored in value.members:
        rebalance_ms = stored.rebalance_timeout
        member = Member(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if rebalance_ms == -1 else rebalance_ms,
            session_timeout_ms=stored.session_timeout,
            protocol_type=value.protocol_type,
            protocols=[(value.protocol or "", bytes(stored.subscription))],
            assignment=bytes(stored.assignment),
        )
        group.add(member, None)
    return group
