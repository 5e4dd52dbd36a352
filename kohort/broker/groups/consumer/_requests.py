"""Requests and timeouts of the groups that use the consumer protocol."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.groups._any_group import AnyGroup
from kohort.broker.groups._environment import GroupEnvironment, TimerKey
from kohort.broker.groups._group import ClassicGroup
from kohort.broker.groups._join import Caller
from kohort.broker.groups.consumer._errors import GroupRequestError
from kohort.broker.groups.consumer._fencing import remove_members, suspend_static
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._heartbeat import heartbeat
from kohort.broker.groups.consumer._member import STATIC_LEAVE_EPOCH, ConsumerMember
from kohort.broker.groups.consumer._member_lookup import present_member
from kohort.broker.groups.consumer._subscriptions import resolve_regexes
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
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
        if request.member_epoch < 0:
            return self._leave(request)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_epoch != 0:
                raise GroupRequestError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found."
                )
            group = ConsumerGroup(request.group_id, self._env)
        if isinstance(group, ClassicGroup):
            raise _not_a_consumer_group(request.group_id)
        response = heartbeat(group, request, caller, now)
        self._groups[request.group_id] = group
        return response

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._groups.get(request.group_id)
        if group is None:
            raise GroupRequestError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found."
            )
        if isinstance(group, ClassicGroup):
            raise _not_a_consumer_group(request.group_id)
        member = present_member(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            suspend_static(group, member)
        else:
            remove_members(group, [member])
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def leave(
        self, group: ConsumerGroup, members: Sequence[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Remove members by LeaveGroup, also those that use the consumer protocol."""
        responses = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in members:
            error = ErrorCode.NONE
            try:
                member = _leaving_member(group, identity)
                if member.member_id in leaving:
                    error = ErrorCode.UNKNOWN_MEMBER_ID
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
            remove_members(group, list(leaving.values()))
        return responses

    def on_timeout(self, group: ConsumerGroup, key: TimerKey, now: float) -> None:
        """Handle a due timer of a group."""
        if key.kind == "regex":
            resolve_regexes(group, now)
            return
        member = group.members.get(key.member_id)
        if member is None or (key.kind == "rebalance" and member.epoch < 0):
            return
        remove_members(group, [member])


def _not_a_consumer_group(group_id: str) -> GroupRequestError:
    message = f"Group {group_id} is not a consumer group."
    return GroupRequestError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _leaving_member(
    group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity
) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is not None and not identity.member_id:
        # An administrator names only the instance.
        member = group.static_member(instance_id)
        return present_member(group, member.member_id if member else "", instance_id)
    return present_member(group, identity.member_id, instance_id)
