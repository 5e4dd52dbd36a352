"""The driver of the steps of unsubscribe() and close(), for any group protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from kohort.coordinator_client._events import LeaveRequested
from kohort.coordinator_client._failure_reports import FailureReports
from kohort.coordinator_client._last_request import Waits
from kohort.coordinator_client._member import CommonMemberData
from kohort.coordinator_client._pending_commands import PendingCommands, Role
from kohort.coordinator_client._state import MemberState
from kohort.transport import escaped, weak_callback

logger = logging.getLogger(__name__)


class JoinSteps(Protocol):
    """The steps of joining, which follow if the caller has subscribed meanwhile."""

    def start(self, reason: str) -> None: ...
    def forget_attempts(self) -> None: ...


class LeavingSteps:
    """The request of the caller, and the steps that ``run`` makes of it."""

    def __init__(
        self,
        member: CommonMemberData,
        pending: PendingCommands,
        failures: FailureReports,
        joining: JoinSteps,
        run: Callable[[], Waits],
    ) -> None:
        self._member = member
        self._pending = pending
        self._failures = failures
        self._joining = joining
        self._run = weak_callback(run)  # its object owns this one
        self.request: LeaveRequested | None = None
        """The caller's request, until the member has left."""
        self.deadline: float | None = None
        """The time at which the current step ends without an event."""
        self._steps: Waits | None = None

    def begin(self, request: LeaveRequested) -> None:
        """Begin to leave, or replace the request of a member that still leaves."""
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

    @property
    def reason(self) -> str:
        return self.request.reason if self.request else "done"

    @property
    def leaves_group(self) -> bool:
        """True if the coordinator must remove the member."""
        return self.request is not None and self.request.leave_group

    def end_failed(self) -> None:
        """End the steps of a member that has failed, and that the coordinator does not have."""
        self._member.cell.move(MemberState.UNSUBSCRIBED, self.reason)
        self.request = None

    def finish(self, *, was_member: bool, has_left: bool) -> None:
        """End the membership. Join again if there is a new subscription."""
        member = self._member
        group, reason = member.settings.group_id, escaped(self.reason)
        if has_left:
            logger.info("[%s] left the group: %s", group, reason)
        elif was_member:
            logger.info("[%s] stopped, but stays in the group for a session: %s", group, reason)
        else:
            logger.info("[%s] stopped without a membership of the group: %s", group, reason)
        self._pending.forget(*Role)
        member.end()
        self._failures.forget_all()
        self._joining.forget_attempts()
        self.request = None
        member.cell.move(MemberState.UNSUBSCRIBED, "left")
        if member.topics is not None:
            self._joining.start("subscribed")
