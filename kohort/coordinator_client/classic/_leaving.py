"""The last callback and LeaveGroup, after unsubscribe() or close().

A cooperative member that leaves during a rebalance still takes part in it, for at most a second.
The last callback runs while JoinGroup is in flight. If the round of joins ends first, the commit of
the callback is repeated in the new generation, after SyncGroup. That works only if the generation
follows the old one directly. Otherwise another member may own the partitions.
"""

from __future__ import annotations

from kohort.coordinator_client.classic._failures import MembershipFailures
from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._leadership import Leadership
from kohort.coordinator_client.classic._member import MemberData
from kohort.coordinator_client.classic._reactions import REACTIONS, Reaction, Signal
from kohort.coordinator_client.classic._rebalance import Rebalance
from kohort.coordinator_client.machine._commands import LeaveGroup
from kohort.coordinator_client.machine._events import Event, LeaveRequested, ResponseReceived
from kohort.coordinator_client.machine._leaving_steps import (
    LEAVE_MIN_SECONDS,
    LastRequest,
    LeavingSteps,
    Waits,
)
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._state import MemberState
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse

MEMBER_ID_WAIT_SECONDS = 0.5
"""Seconds to wait for the member id of a first JoinGroup in flight.

The coordinator may already have a member with that id. Without its LeaveGroup, the rebalances of
the group wait for it until its session expires.
"""

SYNC_WAIT_SECONDS = 1.0
"""Seconds for which a leaving cooperative member with partitions continues a rebalance.

The coordinator rejects its last commit between the end of the join round and SyncGroup.
"""


class Leaving:
    """The steps of unsubscribe() and close(), beside a rebalance that may still be in progress."""

    def __init__(
        self,
        member: MemberData,
        pending: PendingCommands,
        heartbeats: Heartbeats,
        leadership: Leadership,
        rebalance: Rebalance,
        failures: MembershipFailures,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._leadership = leadership
        self._rebalance = rebalance
        self.steps = LeavingSteps(member, pending, failures, rebalance, self._run)
        self._sync_until = 0.0
        self._last = LastRequest(member, pending, ApiKey.LEAVE_GROUP)

    def begin(self, request: LeaveRequested) -> None:
        """Begin to leave, or replace the request of a member that still rebalances."""
        self._sync_until = min(self._pending.now + SYNC_WAIT_SECONDS, request.deadline)
        self.steps.begin(request)

    # --- leaving, from top to bottom ------------------------------------------------------------

    def _run(self) -> Waits:
        """Leave the group."""
        member, pending = self._member, self._pending
        while pending.waits_for(Role.CALLBACK):  # a callback of the rebalance
            yield None
        while self._takes_part_in_rebalance():
            if member.state is MemberState.JOINING and not pending.waits_for(Role.CALLBACK):
                self._last.call_back()
            yield self._sync_until
        if member.state is MemberState.FAILED and not self._needs_leave_group():
            self.steps.end_failed()
            return
        self._stop_rebalance()
        member.cell.move(MemberState.LEAVING, self.steps.reason)
        member_id_until = pending.now + MEMBER_ID_WAIT_SECONDS
        while member.owned:  # with heartbeats, so that the callback can commit
            if not pending.waits_for(Role.CALLBACK):
                self._last.call_back()
            yield None
        self._pending.forget(Role.HEARTBEAT)
        self._heartbeats.stop()
        while pending.waits_for(Role.JOIN) and pending.now < member_id_until:
            yield member_id_until
        was_member, has_left = bool(member.member_id), False
        if self._needs_leave_group():
            request = self.steps.request
            given = request.deadline if request else 0.0
            deadline = max(given, pending.now + LEAVE_MIN_SECONDS)
            has_left = yield from self._last.send(self._leave_command, deadline)
        self._leadership.stop()
        self.steps.finish(was_member=was_member, has_left=has_left)

    def _stop_rebalance(self) -> None:
        """Stop the rebalance. A JoinGroup that may return a new member id stays in flight."""
        self._rebalance.stop()
        if not self.steps.leaves_group or self._member.member_id:
            self._pending.forget(Role.JOIN)

    def _leave_command(self, token: int) -> LeaveGroup:
        return LeaveGroup(token, self._member.member_id, self.steps.reason)

    def _needs_leave_group(self) -> bool:
        return self.steps.leaves_group and bool(self._member.member_id)

    # --- the rebalance that a leaving member finishes --------------------------------------------

    @property
    def is_finishing_rebalance(self) -> bool:
        """True if a leaving member completes a rebalance, so that its last commit is accepted."""
        reaction = REACTIONS[self._member.state, Signal.LEAVE]
        is_requested = self.steps.request is not None
        return is_requested and reaction is Reaction.FINISH and bool(self._member.owned)

    def _takes_part_in_rebalance(self) -> bool:
        """True if a rebalance in progress decides the generation of the last commit.

        While JoinGroup is in flight, the coordinator accepts commits of the old generation until
        the join round ends. The last callback runs in that time. After that the coordinator accepts
        no commits until the response to SyncGroup.
        """
        roles = (Role.JOIN, Role.ASSIGN, Role.SYNC)
        is_in_flight = any(self._pending.waits_for(role) for role in roles)
        is_possible = self._member.in_generation and is_in_flight
        return self.is_finishing_rebalance and is_possible and self._pending.now < self._sync_until

    def take(self, role: Role, event: Event) -> bool:
        """Take an event that the rebalance must not get. Return False for the others."""
        if self.steps.request is None:
            return False
        match role, event:
            case Role.CALLBACK, _:
                return True
            case Role.LEAVE, _:
                self._last.note_response(event)
                return True
            case Role.JOIN, ResponseReceived(_, JoinGroupResponse() as response):
                return self._take_join(response)
            case Role.JOIN, _:
                return True  # the last commit uses the old generation
            case Role.SYNC, ResponseReceived(_, SyncGroupResponse(error_code=code)):
                self._sync_until = self._pending.now  # the assignment is not needed
                return code == 0
            case _:
                return False

    def _take_join(self, response: JoinGroupResponse) -> bool:
        member = self._member
        if member.state is MemberState.LEAVING:
            member.member_id = response.member_id
            return True
        # After a generation without this member, another member may own its partitions.
        follows = response.generation_id == member.generation + 1
        return bool(response.error_code) or not follows
