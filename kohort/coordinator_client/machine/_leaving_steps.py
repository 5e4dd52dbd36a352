"""The steps of unsubscribe() and close() for any protocol: last callback and last request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from kohort.coordinator_client.machine._commands import (
    CallLost,
    CallRevoked,
    Command,
    DropCoordinator,
)
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import (
    CommandFailed,
    Event,
    LeaveRequested,
    ResponseReceived,
)
from kohort.coordinator_client.machine._failure_reports import FailureReports, is_final
from kohort.coordinator_client.machine._member import CommonMemberData
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import error_name
from kohort.logs import error_text, get_logger
from kohort.protocol import ApiKey
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse, LeaveGroupResponse
from kohort.transport import escaped, weak_callback

logger = get_logger(__name__)

LEAVE_MIN_SECONDS = 0.5
"""Minimum seconds for the last request, even if the callbacks took the whole timeout."""

Waits = Generator[float | None, None, None]
"""Steps of leaving. Each yields until the next event, or until a time if there is one."""
LastWaits = Generator[float | None, None, bool]
"""Steps of the last request, which return True if the coordinator has accepted it."""


class LastRequest:
    """The last steps of a member: a callback for all partitions, and the request that leaves."""

    def __init__(self, member: CommonMemberData, pending: PendingCommands, api: ApiKey) -> None:
        self._member = member
        self._pending = pending
        self._api = api
        self._response: Event | None = None

    def call_back(self) -> None:
        """Call the listener for all partitions. Heartbeats continue.

        Lost partitions come first, and the others with the next call. Otherwise the last commit
        would contain the lost ones.
        """
        member = self._member
        is_lost = bool(member.lost) or not member.in_generation
        partitions = member.lost if member.in_generation and member.lost else member.owned
        member.owned_after = member.owned - partitions
        call = CallLost if is_lost else CallRevoked
        self._pending.emit(call(self._pending.start(Role.CALLBACK), partitions))

    def note_response(self, event: Event) -> None:
        """Note the response to the request, or its error."""
        self._response = event

    def send(self, make: Callable[[int], Command], deadline: float) -> LastWaits:
        """Send the request until it succeeds, fails finally or has no time left.

        Return True if it succeeds, or if the coordinator no longer has this member. ``make``
        returns the request with a token.
        """
        pending = self._pending
        attempt = 0
        while True:
            pending.emit(make(pending.start(Role.LEAVE)))
            while pending.waits_for(Role.LEAVE) and pending.now < deadline:
                yield deadline
            if pending.waits_for(Role.LEAVE):
                return False
            action = self._action()
            if action not in (CoordinatorAction.REDISCOVER, CoordinatorAction.RETRY):
                return action in (CoordinatorAction.PROCEED, CoordinatorAction.LOSE_MEMBER)
            retry_at = pending.now + self._member.backoff(attempt)
            attempt += 1
            while pending.now < min(retry_at, deadline):
                yield min(retry_at, deadline)
            if pending.now >= deadline:
                return False

    def _action(self) -> CoordinatorAction:
        """Return the action for the response to the request, or for its error."""
        match self._response:
            case ResponseReceived(_, LeaveGroupResponse() as response):
                code = response.error_code
                code = code or next((m.error_code for m in response.members), 0)
            case ResponseReceived(_, ConsumerGroupHeartbeatResponse(error_code=code)):
                pass
            case CommandFailed(_, error):
                return CoordinatorAction.FAIL if is_final(error) else CoordinatorAction.RETRY
            case _:
                return CoordinatorAction.FAIL
        action = action_for(self._api, code)
        if action is CoordinatorAction.REDISCOVER:
            self._pending.emit(DropCoordinator(f"leaving the group returned {error_name(code)}"))
        if action in (CoordinatorAction.FAIL, CoordinatorAction.REPORT):
            group = self._member.settings.group_id
            error = error_for(self._api, code, group)
            logger.warning("[%s] leaving the group failed: %s", group, error_text(error))
        return action


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
