"""JoinGroup: new members, their member ids, and the rebalances that they start."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kohort.broker.groups._member import Member, Protocols
from kohort.broker.groups.classic._group import ClassicGroup, join_error
from kohort.broker.groups.classic._rebalance import (
    maybe_complete_join,
    prepare_or_complete,
    prepare_rebalance,
)
from kohort.broker.groups.classic._records import append_group_metadata
from kohort.broker.groups.classic._state import GroupState
from kohort.errors import ErrorCode
from kohort.protocol.messages import JoinGroupRequest, JoinGroupResponse


def _any_topic(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a request and the version of its API.

    ``can_describe(topic)`` is True if the client may see the topic.
    """

    client_id: str
    client_host: str
    version: int
    can_describe: Callable[[str], bool] = _any_topic


@dataclass(slots=True)
class _JoinAttempt:
    """One JoinGroup request that is being handled."""

    request: JoinGroupRequest
    caller: Caller
    parked: object
    protocols: Protocols
    now: float

    @property
    def timeouts(self) -> tuple[int, int]:
        """Rebalance and session timeout; version 0 has one for both."""
        session = self.request.session_timeout_ms
        rebalance = self.request.rebalance_timeout_ms
        return (session if self.caller.version == 0 else rebalance), session


def join(
    group: ClassicGroup, request: JoinGroupRequest, caller: Caller, parked: object, now: float
) -> None:
    """Respond to ``parked`` now, or keep it in the group until the rebalance ends."""
    protocols = {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}
    attempt = _JoinAttempt(request, caller, parked, list(protocols.items()), now)
    refusal = _join(group, attempt)
    if refusal is not None:
        group.env.respond(parked, refusal)


def _join(group: ClassicGroup, attempt: _JoinAttempt) -> JoinGroupResponse | None:
    request = attempt.request
    member_id = request.member_id
    if not _has_room(group, member_id):
        group.remove(member_id)
        return join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state is GroupState.DEAD:
        return join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    if not group.accepts(request.protocol_type, attempt.protocols):
        return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if not member_id:
        return _join_new(group, attempt)
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            # Static members never have a pending id. Kafka fails here with the same error.
            return join_error(ErrorCode.UNKNOWN_SERVER_ERROR)
        _add(group, attempt, member_id)
        return None
    error = group.validate_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return join_error(error, member_id)
    return _rejoin(group, attempt, group.members[member_id])


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """True if the member belongs to the group already, or if the group has fewer than the
    maximum.
    """
    member = group.members.get(member_id)
    limit = group.env.config.max_size
    if group.state is GroupState.PREPARING_REBALANCE:
        # Members that have not rejoined may have died, so only joined ones are counted.
        if len(group.members) < limit:
            return True  # Counting joined members is slow in a large group.
        return (member is not None and member.parked_join is not None) or group.joined_count < limit
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member is not None or len(group.members) < limit
    return True


def _join_new(group: ClassicGroup, attempt: _JoinAttempt) -> JoinGroupResponse | None:
    instance_id = attempt.request.group_instance_id
    prefix = attempt.caller.client_id if instance_id is None else instance_id
    unique = uuid.UUID(int=group.env.rng.getrandbits(128), version=4)
    member_id = f"{prefix}-{unique}"
    if instance_id is not None:
        if instance_id in group.static_members:
            return _replace_static(group, attempt, instance_id, member_id)
    elif attempt.caller.version >= 4:
        group.pending_joins.add(member_id)
        group.schedule("session", attempt.now, attempt.request.session_timeout_ms, member_id)
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    _add(group, attempt, member_id)
    return None


def _add(group: ClassicGroup, attempt: _JoinAttempt, member_id: str) -> None:
    rebalance_ms, session_ms = attempt.timeouts
    member = Member(
        member_id=member_id,
        group_instance_id=attempt.request.group_instance_id,
        client_id=attempt.caller.client_id,
        client_host=attempt.caller.client_host,
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=session_ms,
        protocol_type=attempt.request.protocol_type,
        protocols=attempt.protocols,
        is_new=True,
    )
    if group.initial_delay is not None:
        group.initial_delay.note_member()
    group.add(member, attempt.parked)
    # It sends no heartbeats while parked. The timeout removes it if its client has died.
    group.schedule("session", attempt.now, group.env.config.new_member_join_timeout_ms, member_id)
    prepare_or_complete(group, attempt.now)


def _rejoin(group: ClassicGroup, attempt: _JoinAttempt, member: Member) -> JoinGroupResponse | None:
    same = list(member.protocols) == list(attempt.protocols)
    leads = member.member_id == group.leader
    if group.state is GroupState.COMPLETING_REBALANCE and same:
        return group.generation_response(member, with_members=leads)
    if group.state is GroupState.STABLE and same and not leads:
        return group.generation_response(member, with_members=False)
    group.update(member, attempt.protocols, attempt.timeouts)
    group.park_join(member, attempt.parked)
    prepare_or_complete(group, attempt.now)
    return None


def _replace_static(
    group: ClassicGroup, attempt: _JoinAttempt, instance_id: str, new_id: str
) -> JoinGroupResponse | None:
    """Replace a static member that rejoins; a stable group does not rebalance."""
    old_leader = group.leader or ""
    member = group.replace_static(instance_id, new_id)
    group.update(member, attempt.protocols, attempt.timeouts)
    group.restart_session(member, attempt.now)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        append_group_metadata(group, assignments)
        if attempt.caller.version < 9:
            # If it saw itself as the leader, it would assign again (KIP-814).
            response = group.generation_response(member, with_members=False)
            response.leader = old_leader
            return response
        leads = member.member_id == group.leader
        response = group.generation_response(member, with_members=leads)
        response.skip_assignment = leads
        return response
    group.park_join(member, attempt.parked)
    if group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, attempt.now)
    else:
        # Also in CompletingRebalance: the leader may be assigning to the old member id.
        prepare_rebalance(group, attempt.now)
    return None
