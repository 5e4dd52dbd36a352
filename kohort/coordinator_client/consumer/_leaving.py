"""The last callback and the last heartbeat, after unsubscribe() or close()."""

from __future__ import annotations

from kohort.coordinator_client.consumer._failures import ConsumerFailures, leave_command
from kohort.coordinator_client.consumer._heartbeats import ConsumerHeartbeats
from kohort.coordinator_client.consumer._member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMemberData,
)
from kohort.coordinator_client.consumer._reconciliation import Reconciliation
from kohort.coordinator_client.machine._leaving_steps import (
    LEAVE_MIN_SECONDS,
    LastRequest,
    LastWaits,
    LeavingSteps,
    Waits,
)
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._state import MemberState
from kohort.protocol import ApiKey


class ConsumerLeaving:
    """The steps of unsubscribe() and close()."""

    def __init__(
        self,
        member: ConsumerMemberData,
        pending: PendingCommands,
        heartbeats: ConsumerHeartbeats,
        reconciliation: Reconciliation,
        failures: ConsumerFailures,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._reconciliation = reconciliation
        self.steps = LeavingSteps(member, pending, failures, reconciliation, self._run)
        self.last = LastRequest(member, pending, ApiKey.CONSUMER_GROUP_HEARTBEAT)

    # --- leaving, from top to bottom ------------------------------------------------------------

    def _run(self) -> Waits:
        """Leave the group."""
        member, pending = self._member, self._pending
        while pending.waits_for(Role.CALLBACK):  # a callback of the reconciliation
            yield None
        self._reconciliation.stop()
        if member.state is MemberState.FAILED and not self._leaves:
            self.steps.end_failed()
            return
        member.cell.move(MemberState.LEAVING, self.steps.reason)
        if member.owned:
            self.last.call_back()
        while pending.waits_for(Role.CALLBACK):  # with heartbeats, so that it can commit
            yield None
        self._heartbeats.stop()
        was_member, is_accepted = member.is_known, False
        if self._leaves:
            is_accepted = yield from self._send_leave()
        has_left = is_accepted and self.steps.leaves_group
        member.is_known = False
        self.steps.finish(was_member=was_member, has_left=has_left)

    def _send_leave(self) -> LastWaits:
        deadline = self._pending.now + LEAVE_MIN_SECONDS
        request = self.steps.request
        if request and self._member.in_group:  # else the coordinator may be out of reach
            deadline = max(request.deadline, deadline)
        epoch = LEAVE_EPOCH if self.steps.leaves_group else LEAVE_STATIC_EPOCH
        return self.last.send(lambda token: leave_command(self._member, token, epoch), deadline)

    @property
    def _leaves(self) -> bool:
        """True if the coordinator may have this member and must get a last heartbeat.

        A dynamic member that stays in the group sends none. Its session expires.
        """
        is_static = self._member.settings.static
        return self._member.is_known and (self.steps.leaves_group or is_static)
