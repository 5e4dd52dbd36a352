"""JoinGroup, SyncGroup and Heartbeat of classic members in a group of the consumer protocol.

A generation is the member's epoch. No request waits for other members: JoinGroup reconciles the
member like a heartbeat of the consumer protocol, and SyncGroup returns what it may own.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.consumer._embedded_protocol import (
    ClassicSubscription,
    encode_assignment,
    read_subscription,
)
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._heartbeat import reconcile_member, update_member
from kohort.broker.groups.consumer._member import (
    AssignmentState,
    ClassicData,
    ClassicProtocol,
    ConsumerMember,
)
from kohort.broker.groups.consumer._member_lookup import (
    check_room,
    joining_member,
    known_static_member,
    new_member_id,
    present_member,
    replace_static,
)
from kohort.broker.groups.consumer._migration import can_downgrade
from kohort.broker.groups.consumer._target_assignment import update_target
from kohort.errors import ErrorCode, MessageDecodeError
from kohort.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.types import NamedTuple

_PROTOCOL_TYPE = "consumer"
_FIRST_VERSION_WITH_MEMBER_IDS = 4


class Joined(NamedTuple):
    """Result of JoinGroup.

    ``downgrades`` is True if the group has to become classic, with ``generation``. ``rebalances``
    says whether a rebalance follows then.
    """

    response: JoinGroupResponse
    downgrades: bool = False
    generation: int = 0
    rebalances: bool = False


def join_classic(
    group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now: float
) -> Joined:
    """Handle JoinGroup of a classic member; GroupRequestError if the group refuses it."""
    member_id = request.member_id or new_member_id(group)
    check_room(group, member_id, request.group_instance_id)
    _check_protocols(group, request, member_id)
    instance_id = request.group_instance_id
    is_unknown = not request.member_id
    if is_unknown and instance_id is None and caller.version >= _FIRST_VERSION_WITH_MEMBER_IDS:
        required = ErrorCode.MEMBER_ID_REQUIRED
        return Joined(
            JoinGroupResponse(error_code=required, member_id=member_id, protocol_name=None)
        )
    replaced = None
    if instance_id is None or is_unknown:
        found, replaced = joining_member(group, member_id, instance_id, uses_classic=True)
    else:
        found = known_static_member(group, member_id, instance_id)
    try:
        subscription = read_subscription(bytes(request.protocols[0].metadata), group.env.topics)
    except MessageDecodeError:
        raise GroupRequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The subscription of the member is malformed."
        ) from None
    downgrades = replaced is not None and can_downgrade(group, [replaced], is_replaced=True)
    generation = group.epoch
    member = _updated(found, request, caller, subscription)
    if replaced is not None:
        replace_static(group, replaced, found)
    changed = update_member(group, found, member, caller, now)
    if not downgrades:
        update_target(group, now)
    has_target = group.epoch == group.assignment_epoch
    if not downgrades or has_target:
        member = reconcile_member(
            group,
            member,
            group.targets.get(member.member_id, {}),
            subscription.owned,
            now,
            subscription_changed=changed,
        )
    group.cancel("member-join", member.member_id)
    if not downgrades:
        group.restart_session(member, now)
        group.schedule("member-sync", now, _rebalance_timeout_ms(request, caller), member.member_id)
    response = JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member.member_id,
    )
    return Joined(response, downgrades, generation, rebalances=not has_target)


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL for a member without a protocol of all classic members."""
    settings = group.env.group_settings(group.group_id)
    names = {protocol.name for protocol in request.protocols}
    if (
        settings.consumer_migration_policy.lower() == "disabled"
        or request.protocol_type != _PROTOCOL_TYPE
        or not names
        or (group.classic_members and names.isdisjoint(group.preferred_protocols()))
    ):
        raise GroupRequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    """Return the timeout of a member; version 0 has one timeout for both."""
    return request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms


def _updated(
    member: ConsumerMember,
    request: JoinGroupRequest,
    caller: Caller,
    subscription: ClassicSubscription,
) -> ConsumerMember:
    instance_id = request.group_instance_id
    timeout_ms = _rebalance_timeout_ms(request, caller)
    # A request may name a protocol twice. A classic group takes the last one, too.
    protocols = {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=subscription.topics,
        topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicData(
            request.session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in protocols.items()),
        ),
    )


def sync_classic(group: ConsumerGroup, request: SyncGroupRequest, now: float) -> SyncGroupResponse:
    """Handle SyncGroup of a classic member; GroupRequestError if the group refuses it."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    # Only a member that another broker has stored can be without protocols.
    first = next(iter(classic.protocols), ClassicProtocol("", b""))
    if request.protocol_type not in (None, _PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        first.name,
    ):
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_behind = member.epoch < group.assignment_epoch
    if is_behind and member.state is not AssignmentState.UNREVOKED_PARTITIONS:
        _expect_join(group, member, now)
        raise GroupRequestError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.cancel("member-sync", member.member_id)
    group.restart_session(member, now)
    assigned = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(assigned, group.env.topics, first.metadata),
    )


def heartbeat_classic(group: ConsumerGroup, request: HeartbeatRequest, now: float) -> ErrorCode:
    """Restart the session of a classic member; GroupRequestError if the group refuses it.

    Return REBALANCE_IN_PROGRESS if JoinGroup would change what the member may own.
    """
    member, _ = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    group.restart_session(member, now)
    if (
        member.epoch < group.assignment_epoch
        or member.state is AssignmentState.UNREVOKED_PARTITIONS
        or (
            member.state is AssignmentState.UNRELEASED_PARTITIONS
            and not group.waits_for_others(member)
        )
    ):
        _expect_join(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicData]:
    member = present_member(group, member_id, instance_id)
    if member.classic is None:
        raise GroupRequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise GroupRequestError(ErrorCode.ILLEGAL_GENERATION)


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    """Remove the member unless it rejoins within its rebalance timeout."""
    if not group.is_scheduled("member-join", member.member_id):
        group.schedule("member-join", now, member.rebalance_timeout_ms, member.member_id)
