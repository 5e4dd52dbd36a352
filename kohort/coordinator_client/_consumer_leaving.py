"""The last callback and the last heartbeat, after unsubscribe() or close()."""

from __future__ import annotations

import logging

from kohort.coordinator_client._consumer_failures import ConsumerFailures, leave_command
from kohort.coordinator_client._consumer_heartbeats import ConsumerHeartbeats
from kohort.coordinator_client._consumer_member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMemberData,
)
from kohort.coordinator_client._events import LeaveRequested
from kohort.coordinator_client._last_request import LEAVE_MIN_SECONDS, LastRequest, Waits
from kohort.coordinator_client._pending_commands import PendingCommands, Role
from kohort.coordinator_client._reconciliation import Reconciliation
from kohort.coordinator_client._state import MemberState
from kohort.protocol import ApiKey
from kohort.transport import escaped

logger = logging.getLogger(__name__)


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
        self._failures = failures
        self.request: LeaveRequested | None = None
        """The caller's request, until the member has left."""
        self.deadline: float | None = None
        """The time at which the current step ends without an event."""
        self.last = LastRequest(member, pending, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        self._steps: Waits | None = None

    def begin(self, request: LeaveRequested) -> None:
        """Begin to leave, or replace the request of a member whose callback still runs."""
        self.request = request
        if self._steps is None:
            self._steps = self._run()

    def advance(self) -> None:
        """Take the steps that are possible now. Called after each event."""
        if self._steps is not None:
            try:
                self.deadline = next(self._steps)
            except StopIteration:
                self._steps = self.deadline = None

    # --- leaving, from top to bottom ------------------------------------------------------------

    def _run(self) -> Waits:
        """Leave the group."""
        member, pending = self._member, self._pending
        while pending.waits_for(Role.CALLBACK):  # a callback of the reconciliation
            yield None
        self._reconciliation.stop()
        if member.state is MemberState.FAILED and not self._leaves:
            member.cell.move(MemberState.UNSUBSCRIBED, self._reason)
            self.request = None
            return
        member.cell.move(MemberState.LEAVING, self._reason)
        if member.owned:
            self.last.call_back()
        while pending.waits_for(Role.CALLBACK):  # with heartbeats, so that it can commit
            yield None
        self._heartbeats.stop()
        if self._leaves:
            yield from self._send_leave()
        self._finish()

    def _send_leave(self) -> Waits:
        deadline = self._pending.now + LEAVE_MIN_SECONDS
        if self.request and self._member.in_group:  # else the coordinator may be out of reach
            deadline = max(self.request.deadline, deadline)
        epoch = LEAVE_EPOCH if self._leaves_for_good else LEAVE_STATIC_EPOCH
        return self.last.send(lambda token: leave_command(self._member, token, epoch), deadline)

    def _finish(self) -> None:
        """End the membership. Join again if there is a new subscription."""
        member = self._member
        logger.info("[%s] left the group: %s", member.settings.group_id, escaped(self._reason))
        self._pending.forget(*Role)
        member.end()
        member.is_known = False
        self._failures.forget_all()
        self._reconciliation.forget_attempts()
        self.request = None
        member.cell.move(MemberState.UNSUBSCRIBED, "left")
        if member.topics is not None:
            self._reconciliation.start("subscribed")

    # --- the request ----------------------------------------------------------------------------

    @property
    def _reason(self) -> str:
        return self.request.reason if self.request else "done"

    @property
    def _leaves_for_good(self) -> bool:
        return self.request is not None and self.request.leave_group

    @property
    def _leaves(self) -> bool:
        """True if the coordinator may have this member and must get a last heartbeat.

        A dynamic member that stays in the group sends none. Its session expires.
        """
        return self._member.is_known and (self._leaves_for_good or self._member.settings.static)
