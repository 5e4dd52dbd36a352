"""SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._rebalance import prepare_or_complete
from kohort.broker.groups.classic._records import append_group_metadata
from kohort.broker.groups.classic._state import GroupState
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def sync(group: ClassicGroup, request: SyncGroupRequest, parked: object, now: float) -> None:
    """Respond to ``parked`` now, or keep it until the leader's SyncGroup brings the assignment."""
    error = _check_sync(group, request)
    if error is not ErrorCode.NONE:
        group.env.respond(parked, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        group.cancel("sync")
    if group.state is GroupState.STABLE:
        # As in Kafka, only a heartbeat, a join or a commit restarts the session.
        group.env.respond(parked, group.sync_response(member))
        _steer_on(group, now)
        return
    group.complete_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.parked_sync = parked
    if member.member_id == group.leader:
        given = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        _become_stable(group, given, now)
        _steer_on(group, now)


def _steer_on(group: ClassicGroup, now: float) -> None:
    """Start the next rebalance if partitions of a steered group wait for their former owners.

    All members must have their assignments first. Otherwise an owner does not give up anything.
    """
    if group.steering is not None and not group.pending_syncs:
        prepare_or_complete(group, now)


def _check_member(group: ClassicGroup, request: SyncGroupRequest | HeartbeatRequest) -> ErrorCode:
    """Return the error for a request that is of no member of the current generation."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = _check_member(group, request)
    if error is not ErrorCode.NONE:
        return error
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
        None,
        group.protocol,
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _become_stable(group: ClassicGroup, given: dict[str, bytes], now: float) -> None:
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    if group.steering is not None:
        assignments = group.steering(assignments)
    append_group_metadata(group, assignments)
    for member in group.members.values():
        member.assignment = assignments[member.member_id]
        if group.complete_sync(member):
            # Its session may have expired while the request was parked.
            group.restart_session(member, now)
    group.transition(GroupState.STABLE, now)


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now: float) -> ErrorCode:
    """Restart the member's session; REBALANCE_IN_PROGRESS makes it rejoin."""
    error = _check_member(group, request)
    if error is not ErrorCode.NONE:
        return error
    group.restart_session(group.members[request.member_id], now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    group: ClassicGroup, members: Iterable[LeaveGroupRequest.MemberIdentity], now: float
) -> list[LeaveGroupResponse.MemberResponse]:
    """Remove members by member id or only by instance id, and rebalance the rest once."""
    responses = [
        LeaveGroupResponse.MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_leave_one(group, identity),
        )
        for identity in members
    ]
    left = any(response.error_code == ErrorCode.NONE for response in responses)
    if left and group.state not in (GroupState.EMPTY, GroupState.DEAD):
        prepare_or_complete(group, now)
    return responses


def _leave_one(group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member_id = identity.member_id
    if not member_id:
        found = group.static_members.get(identity.group_instance_id or "")
        if found is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group.remove(found)
        return ErrorCode.NONE
    if member_id not in group.pending_joins:
        error = group.validate_member(member_id, identity.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    group.remove(member_id)
    return ErrorCode.NONE
