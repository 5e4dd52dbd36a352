"""The state of a group at one moment, as tests see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.broker.groups import (
    AnyGroup,
    ConsumerGroup,
    ConsumerMember,
    GroupState,
    Member,
    ShareGroup,
    ShareMember,
)
from kohort.broker.share import SharePartition
from kohort.errors import MessageDecodeError
from kohort.protocol import decode_from
from kohort.protocol.messages import ConsumerProtocolAssignment
from kohort.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member of a group.

    ``assignment`` is the one from the leader or the coordinator. It is empty for protocols other
    than the consumer's.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group. ``state`` is Kafka's name of it; an unknown group is "Dead".

    ``type`` is "classic", "consumer" or "share", the protocol of the group. In the last two
    ``generation`` is the group epoch, and each member has the partitions that it may own now.
    """

    group_id: str
    state: str = GroupState.DEAD.value
    generation: int = -1
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: tuple[MemberSnapshot, ...] = field(default=())
    type: str = "classic"

    @property
    def is_stable(self) -> bool:
        """True if every member has its assignment."""
        return self.state == GroupState.STABLE.value

    @property
    def assignment(self) -> dict[str, frozenset[TopicPartition]]:
        """Member id -> its partitions."""
        return {member.member_id: member.assignment for member in self.members}


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """A record that a share group has in flight.

    ``state`` is "available", "acquired", "acknowledged", "archiving" or "archived". ``member_id``
    has the lock, which only an acquired record has.
    """

    state: str
    delivery_count: int
    member_id: str | None = None


@dataclass(frozen=True, slots=True)
class ShareState:
    """A partition as its leader has it for a share group.

    All records below ``start`` are over. ``records`` has those from there on that were delivered,
    by offset, and ``end`` is the offset after them.
    """

    start: int
    end: int
    records: Mapping[int, SharedRecord]

    @property
    def locks(self) -> dict[int, str]:
        """The member that has acquired each locked record, by offset."""
        return {
            offset: record.member_id
            for offset, record in self.records.items()
            if record.member_id is not None
        }


def share_state(machine: SharePartition) -> ShareState:
    records: dict[int, SharedRecord] = {}
    for unit in machine.units():
        delivery = unit.delivery
        record = SharedRecord(delivery.state.name.lower(), delivery.count, delivery.member or None)
        for offset in range(max(unit.first, machine.start), unit.last + 1):
            records[offset] = record
    return ShareState(machine.start, machine.end + 1, records)


def snapshot(group_id: str, group: AnyGroup | ShareGroup | None) -> GroupSnapshot:
    if group is None:
        return GroupSnapshot(group_id)
    if isinstance(group, ShareGroup):
        return _share_snapshot(group)
    if isinstance(group, ConsumerGroup):
        return _consumer_snapshot(group)
    # A steered group rebalances as soon as all members know their assignments.
    state = GroupState.PREPARING_REBALANCE if group.steering is not None else group.state
    return GroupSnapshot(
        group_id=group_id,
        state=state.value,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(_member(member) for member in group.members.values()),
    )


def _consumer_snapshot(group: ConsumerGroup) -> GroupSnapshot:
    return GroupSnapshot(
        group_id=group.group_id,
        state=group.state.value,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        protocol=group.assignor_name,
        members=tuple(_consumer_member(group, each) for each in group.members.values()),
        type=group.type_name,
    )


def _consumer_member(group: ConsumerGroup, member: ConsumerMember) -> MemberSnapshot:
    topics = group.env.topics
    return MemberSnapshot(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=frozenset(
            TopicPartition(topic.name, partition)
            for topic_id, partitions in member.assigned.items()
            if (topic := topics.identified(topic_id)) is not None
            for partition in partitions
        ),
    )


def _member(member: Member) -> MemberSnapshot:
    return MemberSnapshot(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=_partitions(member.assignment),
    )


def _partitions(assignment: bytes) -> frozenset[TopicPartition]:
    if len(assignment) < 2:
        return frozenset()
    version = max(0, min(3, int.from_bytes(assignment[:2], "big")))
    try:
        decoded, _ = decode_from(ConsumerProtocolAssignment, version, assignment, 2)
    except MessageDecodeError:
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in decoded.assigned_partitions
        for partition in topic.partitions
    )


def _share_snapshot(group: ShareGroup) -> GroupSnapshot:
    return GroupSnapshot(
        group_id=group.group_id,
        state=group.state.value,
        generation=group.epoch,
        protocol_type=group.protocol_type,
        protocol="simple",
        members=tuple(_share_member(group, member) for member in group.members.values()),
        type=group.type_name,
    )


def _share_member(group: ShareGroup, member: ShareMember) -> MemberSnapshot:
    topics = ((group.env.topics.identified(each), each) for each in member.assigned)
    return MemberSnapshot(
        member_id=member.member_id,
        group_instance_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=frozenset(
            TopicPartition(topic.name, partition)
            for topic, topic_id in topics
            if topic is not None
            for partition in member.assigned[topic_id]
        ),
    )
