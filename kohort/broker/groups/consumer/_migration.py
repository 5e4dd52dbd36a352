"""Conversion of a group to the other protocol while its members stay.

A consumer member that joins a classic group upgrades it. The classic members stay in the group of
the consumer protocol. When the last consumer member has gone, the group becomes classic again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups._member import Member
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._records import append_group_metadata, group_metadata_key
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._embedded_protocol import (
    encode_assignment,
    read_assignment,
    read_subscription,
)
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import ClassicData, ClassicProtocol, ConsumerMember
from kohort.broker.groups.consumer._records import (
    delete_group_records,
    set_assignment_epoch,
    set_current,
    set_epoch,
    set_member,
    set_target,
)
from kohort.broker.groups.consumer._subscriptions import metadata_hash
from kohort.errors import ErrorCode, MessageDecodeError

_UPGRADES = ("bidirectional", "upgrade")
_DOWNGRADES = ("bidirectional", "downgrade")
_PROTOCOL_TYPE = "consumer"


def check_upgrade(classic: ClassicGroup) -> None:
    """Raise GROUP_ID_NOT_FOUND if a group with members must not be upgraded, whatever they do."""
    if not classic.members:
        return
    settings = classic.env.group_settings(classic.group_id)
    if settings.consumer_migration_policy.lower() not in _UPGRADES:
        raise _refused(classic, "online upgrade is disabled.")
    if classic.protocol_type != _PROTOCOL_TYPE:
        raise _refused(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > settings.consumer_max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size.")


def upgraded(classic: ClassicGroup) -> ConsumerGroup:
    """Return a group of the consumer protocol with the members of a classic one.

    Nothing changes in the classic group. GROUP_ID_NOT_FOUND is raised if the data of a member
    prevent the upgrade. UNKNOWN_SERVER_ERROR is raised in the first rebalance, before the members
    have chosen a protocol. It is also raised if a waiting member lacks the present protocol, or if
    two members have the same partition.
    """
    group = ConsumerGroup(classic.group_id, classic.env)
    if not classic.members:
        _delete_classic(classic)
        return group
    if classic.protocol is None:
        raise _failed()
    try:
        members = [_upgraded_member(classic, each) for each in classic.members.values()]
    except MessageDecodeError:
        raise _refused(classic, "the embedded consumer protocol is malformed.") from None
    held = Counter(each for member in members for each in member.held)
    if any(count > 1 for count in held.values()):
        raise _failed()
    _delete_classic(classic)
    for member in members:
        set_member(group, member)
    set_epoch(group, classic.generation, metadata_hash(group))
    group.topics_version = group.env.topics.version
    for member in members:
        target = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
        set_target(group, member.member_id, target)
    set_assignment_epoch(group, classic.generation, 0)
    for member in members:
        set_current(group, member)
    return group


def _delete_classic(classic: ClassicGroup) -> None:
    classic.env.append(classic.group_id, group_metadata_key(classic.group_id), None)


def end_parked_requests(classic: ClassicGroup) -> None:
    """Respond to waiting members of a classic group with REBALANCE_IN_PROGRESS."""
    for member in classic.members.values():
        rebalancing = ErrorCode.REBALANCE_IN_PROGRESS
        classic.fail_join(member, error_code=rebalancing, member_id=member.member_id)
        classic.complete_sync(member, rebalancing)


def finish_upgrade(classic: ClassicGroup, group: ConsumerGroup, now: float) -> None:
    """Respond to waiting members of the classic group, and move its offsets."""
    end_parked_requests(classic)
    classic.stop_timers()
    group.offsets = classic.offsets
    # All members, because one that has turned into a consumer member has lost its session, too.
    for each in group.members.values():
        group.restart_session(each, now)


def _refused(classic: ClassicGroup, reason: str) -> GroupRequestError:
    return GroupRequestError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


def _failed() -> GroupRequestError:
    """Return the error of an upgrade that Kafka starts and does not finish."""
    return GroupRequestError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _upgraded_member(classic: ClassicGroup, member: Member) -> ConsumerMember:
    topics = classic.env.topics
    assert classic.protocol is not None
    if not member.supports(classic.protocol):
        raise _failed()
    subscription = read_subscription(member.metadata(classic.protocol), topics)
    assignment = read_assignment(member.assignment, topics)
    if assignment.has_user_data:
        raise _refused(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade.",
        )
    generation = classic.generation
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topics,
        classic=ClassicData(
            member.session_timeout_ms,
            tuple(ClassicProtocol(name, bytes(data)) for name, data in member.protocols),
        ),
        epoch=generation,
        previous_epoch=generation,
        assigned={
            topic_id: dict.fromkeys(sorted(partitions), generation)
            for topic_id, partitions in assignment.partitions.items()
        },
    )


def can_downgrade(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], *, is_replaced: bool = False
) -> bool:
    """True if the group becomes classic when these members leave.

    Only classic members may remain. With ``is_replaced`` a classic member takes the place of the
    one that leaves, which must be a member of the consumer protocol then.
    """
    remaining = len(group.members) - len(leaving)
    leaving_classic = sum(member.classic is not None for member in leaving)
    settings = group.env.group_settings(group.group_id)
    return (
        len(group.classic_members) - leaving_classic == remaining
        and not (is_replaced and leaving_classic)
        and (is_replaced or remaining > 0)
        and settings.consumer_migration_policy.lower() in _DOWNGRADES
        and remaining + is_replaced <= settings.max_size
        # Members that another broker has stored may have no protocol in common.
        and (remaining == 0 or any(group.preferred_protocols()))
    )


def downgraded(
    group: ConsumerGroup, leaving: Collection[str], generation: int, now: float
) -> ClassicGroup:
    """Return a classic group with the members that do not leave, in the state Stable.

    Each member has its target assignment.
    """
    classic = ClassicGroup(group.group_id, group.env, GroupState.STABLE)
    classic.generation = generation
    classic.state_timestamp_ms = group.env.wall_ms(now)
    classic.offsets = group.offsets
    for member in group.members.values():
        if member.member_id not in leaving and member.classic is not None:
            classic.add(_classic_member(member, member.classic), None)
    classic.protocol = classic.select_protocol()
    assignments = {}
    for each in classic.members.values():
        target = group.targets.get(each.member_id, {})
        metadata = each.metadata(classic.protocol)
        each.assignment = encode_assignment(target, group.env.topics, metadata)
        assignments[each.member_id] = each.assignment
    # Nothing above changes the old group, so an error there leaves it as it is.
    delete_group_records(group)
    group.stop_timers()
    append_group_metadata(classic, assignments)
    classic.start_timers(now)
    return classic


def _classic_member(member: ConsumerMember, classic: ClassicData) -> Member:
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocol_type=_PROTOCOL_TYPE,
        # Stored records may name a protocol twice.
        protocols=list(dict(classic.protocols).items()),
    )
