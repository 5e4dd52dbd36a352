"""Requests and timeouts of the groups that use the consumer protocol."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.groups._environment import GroupEnvironment, TimerKey
from kohort.broker.groups._errors import GroupRequestError, heartbeat_error
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.classic._rebalance import prepare_rebalance
from kohort.broker.groups.consumer._classic_members import join_classic
from kohort.broker.groups.consumer._fencing import remove_members, suspend_static
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._heartbeat import heartbeat
from kohort.broker.groups.consumer._member import (
    STATIC_LEAVE_EPOCH,
    AssignmentState,
    ConsumerMember,
)
from kohort.broker.groups.consumer._member_lookup import present_member
from kohort.broker.groups.consumer._migration import (
    can_downgrade,
    check_upgrade,
    downgraded,
    end_parked_requests,
    finish_upgrade,
    upgraded,
)
from kohort.broker.groups.consumer._records import delete_group_records
from kohort.broker.groups.consumer._subscriptions import resolve_regexes
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)


class ConsumerRequests:
    """Requests to consumer groups, which are in the coordinator's table of all groups."""

    def __init__(self, groups: dict[str, AnyGroup], env: GroupEnvironment) -> None:
        self._groups = groups
        self._env = env

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a valid heartbeat; GroupRequestError if the group refuses it."""
        with self._env.all_or_nothing():
            return self._heartbeat(request, caller, now)

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < 0:
            return self._leave(request, now)
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return heartbeat(group, request, caller, now)
        if request.member_epoch != 0:
            if group is None:
                raise _not_found(f"Consumer group {request.group_id} not found.")
            raise _not_a_consumer_group(request.group_id)
        return self._found(request, group, caller, now)

    def _found(
        self,
        request: ConsumerGroupHeartbeatRequest,
        classic: ClassicGroup | None,
        caller: Caller,
        now: float,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle the first heartbeat of a new group or of an upgraded classic one."""
        if classic is None:
            group = ConsumerGroup(request.group_id, self._env)
            response = heartbeat(group, request, caller, now)
        else:
            check_upgrade(classic)
            try:
                with self._env.all_or_nothing():
                    group = upgraded(classic)
                    response = heartbeat(group, request, caller, now)
            except GroupRequestError as refusal:
                # As in Kafka, the waiting members get their responses before the upgrade.
                end_parked_requests(classic)
                return heartbeat_error(refusal)
            finish_upgrade(classic, group, now)
        self._groups[request.group_id] = group
        return response

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.get(request.group_id)
        if group is None:
            raise _not_found(f"Group {request.group_id} not found.")
        if isinstance(group, ClassicGroup):
            raise _not_a_consumer_group(request.group_id)
        member = present_member(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            suspend_static(group, member)
        else:
            self._remove(group, [member], now)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember], now: float) -> None:
        """Remove members. If only classic members remain, the group becomes classic."""
        if not can_downgrade(group, members):
            remove_members(group, members)
            return
        leaving = {member.member_id for member in members}
        classic = downgraded(group, leaving, group.epoch, now)
        self._groups[group.group_id] = classic
        prepare_rebalance(classic, now)

    # Classic members

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now: float
    ) -> JoinGroupResponse:
        """Handle JoinGroup in a group with members; GroupRequestError if the group refuses it."""
        with self._env.all_or_nothing():
            joined = join_classic(group, request, caller, now)
            if joined.downgrades:
                classic = downgraded(group, (), joined.generation, now)
                self._groups[group.group_id] = classic
                if joined.rebalances:
                    prepare_rebalance(classic, now)
            return joined.response

    def make_classic(self, group: ConsumerGroup) -> ClassicGroup:
        """Replace a group without members by a new classic one, which has its offsets."""
        delete_group_records(group)
        group.stop_timers()
        classic = ClassicGroup(group.group_id, self._env)
        classic.offsets = group.offsets
        self._groups[group.group_id] = classic
        return classic

    def leave(
        self,
        group: ConsumerGroup,
        members: Sequence[LeaveGroupRequest.MemberIdentity],
        now: float,
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Remove members by LeaveGroup, also those that use the consumer protocol."""
        responses = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in members:
            error = ErrorCode.NONE
            try:
                # As in Kafka, a member may be named twice. Members are removed after all checks.
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except GroupRequestError as refusal:
                error = refusal.code
            responses.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        if leaving:
            with self._env.all_or_nothing():
                self._remove(group, list(leaving.values()), now)
        return responses

    def on_timeout(self, group: ConsumerGroup, key: TimerKey, now: float) -> None:
        """Handle a due timer of a group."""
        if key.kind == "regex":
            resolve_regexes(group, now)
            return
        member = group.members.get(key.member_id)
        if member is None:
            return
        if key.kind == "rebalance":
            has_to_revoke = member.state is AssignmentState.UNREVOKED_PARTITIONS
            if member.epoch < 0 or not has_to_revoke:
                return
        self._remove(group, [member], now)


def _not_found(message: str) -> GroupRequestError:
    return GroupRequestError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _not_a_consumer_group(group_id: str) -> GroupRequestError:
    return _not_found(f"Group {group_id} is not a consumer group.")


def _leaving_member(
    group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity
) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is not None and not identity.member_id:
        # An administrator names only the instance.
        member = group.static_member(instance_id)
        return present_member(group, member.member_id if member else "", instance_id)
    return present_member(group, identity.member_id, instance_id)
