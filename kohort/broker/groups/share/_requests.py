"""Requests and timeouts of share groups."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.groups._environment import GroupEnvironment, TimerKey
from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.share._group import ShareGroup, StateTopic
from kohort.broker.groups.share._heartbeat import LEAVE_EPOCH, heartbeat, remove_member
from kohort.broker.groups.share._records import delete_group_records, set_epoch
from kohort.broker.groups.share._states import delete_states, initialize, initialize_subscribed
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareRequests:
    """Requests to the share groups of a coordinator, which ``groups`` has by their ids."""

    def __init__(self, groups: dict[str, ShareGroup], env: GroupEnvironment) -> None:
        self._groups = groups
        self._env = env

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now: float
    ) -> ShareGroupHeartbeatResponse:
        """Handle a valid heartbeat; GroupRequestError if the group refuses it."""
        group_id, epoch = request.group_id, request.member_epoch
        group = self._groups.get(group_id)
        if group is None and epoch != 0:
            raise GroupRequestError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found."
            )
        with self._env.all_or_nothing():
            if group is None:
                group = ShareGroup(group_id, self._env)
            if epoch == LEAVE_EPOCH:
                remove_member(group, group.known_member(request.member_id).member_id)
                return ShareGroupHeartbeatResponse(
                    member_id=request.member_id, member_epoch=LEAVE_EPOCH
                )
            response = heartbeat(group, request, caller, now)
        self._groups[group_id] = group
        return response

    def initialize(self, group_id: str) -> None:
        """Initialize the partitions that a heartbeat has found without a state."""
        group = self._groups.get(group_id)
        if group is not None:
            initialize_subscribed(group)

    def on_timeout(self, key: TimerKey) -> None:
        """Remove the member whose session has expired."""
        group = self._groups.get(key.group_id)
        if group is not None and key.member_id in group.members:
            remove_member(group, key.member_id)

    def delete(self, group: ShareGroup) -> None:
        """Delete a group without members, with its states."""
        delete_states(group, list(group.initialized))
        delete_group_records(group)

    def set_starts(
        self,
        group_id: str,
        topics: Mapping[bytes, StateTopic],
        starts: Mapping[tuple[bytes, int], int],
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Set the starts of partitions in a group without members, which is created if needed."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id, self._env)
            set_epoch(group, group.epoch, 0)
        return initialize(group, topics, starts)
