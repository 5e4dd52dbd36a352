"""The last callback and the last request of a member that leaves, for any group protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator

from kohort.coordinator_client._commands import CallLost, CallRevoked, Command, DropCoordinator
from kohort.coordinator_client._error_code_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._events import CommandFailed, Event, ResponseReceived
from kohort.coordinator_client._failure_reports import is_final
from kohort.coordinator_client._member import CommonMemberData
from kohort.coordinator_client._pending_commands import PendingCommands, Role
from kohort.errors import error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse, LeaveGroupResponse

logger = logging.getLogger(__name__)

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
            logger.warning("[%s] leaving the group failed: %s", group, str(error))
        return action
