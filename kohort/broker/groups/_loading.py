"""Loading of groups and offsets from the records of ``__consumer_offsets``."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._member import CommittedOffset, Member
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._records import read_key, read_value
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._loading import (
    CONSUMER_RECORDS,
    EPOCH_RECORD,
    read_consumer_record,
    replay,
)
from kohort.errors import MessageDecodeError
from kohort.protocol import Buffer
from kohort.protocol.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

_INT16 = struct.Struct(">h")


def load_groups(
    records: Iterable[tuple[Buffer | None, Buffer | None]], env: GroupEnvironment, now: float
) -> dict[str, AnyGroup]:
    """Return the groups that the records store, in order; their sessions start now.

    Records of other kinds of groups and records that do not decode are omitted.
    """
    loader = _Loader(env)
    for raw_key, raw_value in records:
        if raw_key is None:
            continue
        try:
            loader.replay(raw_key, raw_value)
        except (MessageDecodeError, struct.error):
            continue
    groups = loader.finish()
    for group in groups.values():
        group.start_timers(now)
    return groups


class _Loader:
    """The groups and offsets of the records so far."""

    def __init__(self, env: GroupEnvironment) -> None:
        self._env = env
        self._groups: dict[str, AnyGroup] = {}
        # Offsets outlive the change of a group to the other protocol, which deletes its records.
        self._offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}

    def finish(self) -> dict[str, AnyGroup]:
        """Return the groups. A group exists by its offsets, too."""
        for group_id, offsets in self._offsets.items():
            if offsets and group_id not in self._groups:
                self._groups[group_id] = ClassicGroup(group_id, self._env)
        for group_id, group in self._groups.items():
            group.offsets = self._offsets.get(group_id, {})
        return self._groups

    def replay(self, raw_key: Buffer, raw_value: Buffer | None) -> None:
        """Apply one record."""
        (kind,) = _INT16.unpack_from(raw_key)
        if kind in CONSUMER_RECORDS:
            self._replay_consumer(kind, raw_key, raw_value)
            return
        key = read_key(raw_key)
        if key is None:
            return
        value = None if raw_value is None else read_value(key, raw_value)
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            offsets = self._offsets.setdefault(key.group, {})
            if isinstance(value, OffsetCommitValue):
                offsets[key.topic, key.partition] = stored_offset(value)
            else:
                offsets.pop((key.topic, key.partition), None)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                self._groups[key.group] = _restore(key.group, self._env, value)
            elif isinstance(self._groups.get(key.group), ClassicGroup):
                del self._groups[key.group]

    def _replay_consumer(self, kind: int, raw_key: Buffer, raw_value: Buffer | None) -> None:
        key, value = read_consumer_record(kind, raw_key, raw_value)
        group = self._groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            if kind == EPOCH_RECORD and value is None:
                del self._groups[key.group_id]
            else:
                replay(group, key, value)
        elif value is not None:
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id, self._env)
            replay(group, key, value)


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
