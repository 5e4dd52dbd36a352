"""The way out of a group: the last callback, then LeaveGroup."""

from __future__ import annotations

import logging
import random

from kohort.coordinator_client._answers import Action, action_for, failure
from kohort.coordinator_client._commands import CallLost, CallRevoked, DropCoordinator, LeaveGroup
from kohort.coordinator_client._events import LeaveRequested
from kohort.coordinator_client._member import NO_GENERATION, NO_PARTITIONS, MemberSettings, Role
from kohort.coordinator_client._state import MemberState
from kohort.coordinator_client._syncing import Syncing
from kohort.errors import error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import LeaveGroupResponse, SyncGroupResponse
from kohort.transport import escaped

logger = logging.getLogger(__name__)

LEAVE_GRACE = 0.5
"""Seconds that LeaveGroup gets even when the callbacks took all of the time."""
MEMBER_ID_GRACE = 0.5
"""Seconds to wait for the member id that a first JoinGroup has asked for. Until it has left or its
session has expired, the coordinator holds up everybody's rebalance for whom it gave an id to."""

SYNC_GRACE = 1.0
"""Seconds to wait for SyncGroup's answer with what is owned meanwhile (cooperative), as the last
commit would be refused before it."""


class Leaving(Syncing):
    """unsubscribe() and close()."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.leave: LeaveRequested | None = None
        """What the caller asked for; it waits for the callback in progress, if there is one."""
        self._leave_retry: float | None = None
        self._leave_attempts = 0
        self._member_id_until = 0.0
        self._sync_until = 0.0

    def leave_requested(self, event: LeaveRequested, now: float) -> None:
        self.topics = None
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.LEAVING):
            return
        self.leave = event
        self._sync_until = min(now + SYNC_GRACE, event.deadline)

    def go_on_leaving(self, now: float) -> None:
        """After each event: begin to leave, unless something has to come first."""
        if self.leave is None or self.state is MemberState.LEAVING or self.waits_for(Role.CALLBACK):
            return
        if self._between_commits() and now < self._sync_until:
            return
        known = self.member_id and self.leave.leave_group
        if self.state is MemberState.FAILED and not known:
            self.move(MemberState.UNSUBSCRIBED, self.leave.reason)
            self.leave = None
            return
        self.start_leaving(now)

    def _between_commits(self) -> bool:
        """The coordinator takes no commit until SyncGroup is answered, and there is one to make."""
        return self.state in (MemberState.ASSIGNING, MemberState.SYNCING) and bool(self.owned)

    def sync_answered(self, response: SyncGroupResponse, now: float) -> None:
        if self.leave is not None and response.error_code == 0:
            self._sync_until = now  # what it assigns is of no interest any more
        else:
            super().sync_answered(response, now)

    def start_leaving(self, now: float) -> None:
        """The last callback, while heartbeats go on; then LeaveGroup."""
        request = self.leave
        assert request is not None
        self.retry_at = None
        self.forget(Role.POLL, Role.ASSIGN, Role.SYNC)
        if self.member_id or not request.leave_group:
            self.forget(Role.JOIN)
        self._member_id_until = now + MEMBER_ID_GRACE
        self.move(MemberState.LEAVING, request.reason)
        if self.owned:
            owned, self.owned_after = self.owned, NO_PARTITIONS
            token = self.start(Role.CALLBACK)
            self.emit(CallRevoked(token, owned) if self.in_generation else CallLost(token, owned))
        else:
            self.send_leave(request, now)

    def send_leave(self, request: LeaveRequested, now: float) -> None:
        self._leave_retry = None
        self.heartbeats.stop()
        if self.waits_for(Role.JOIN) and now < self._member_id_until:
            return  # its answer brings the member id
        if not self.member_id or not request.leave_group:
            self.left(now)
            return
        if not self._leave_attempts:
            deadline = max(request.deadline, now + LEAVE_GRACE)
            self.leave = LeaveRequested(request.reason, deadline, True)
        self._leave_attempts += 1
        self.emit(LeaveGroup(self.start(Role.LEAVE), self.member_id, request.reason))

    def late_join_answered(self, member_id: str, now: float) -> None:
        """The JoinGroup that was under way when leaving began: "" if it came to nothing."""
        self.member_id = member_id
        if self.leave is not None and not self.waits_for(Role.CALLBACK):
            self.send_leave(self.leave, now)

    def leave_answered(self, response: LeaveGroupResponse, now: float) -> None:
        code = response.error_code or next((m.error_code for m in response.members), 0)
        action = action_for(ApiKey.LEAVE_GROUP, code)
        if action is Action.REDISCOVER:
            self.emit(DropCoordinator(f"LeaveGroup was answered {error_name(code)}"))
        if action in (Action.REDISCOVER, Action.RETRY):
            self._leave_retry = now + self.backoff(self._leave_attempts - 1)
            return
        if action is Action.FAIL:
            logger.warning(
                "[%s] leaving: %s", self.settings.group_id, failure(ApiKey.LEAVE_GROUP, code)
            )
        self.left(now)

    def left(self, now: float) -> None:
        logger.info(
            "[%s] left the group: %s",
            self.settings.group_id,
            escaped(self.leave.reason if self.leave else "done"),
        )
        self.forget(*Role)
        self.heartbeats.stop()
        self.stop_leading()
        self.member_id, self.generation, self.protocol = "", NO_GENERATION, None
        self.losses += 1
        self.failure = self.leave = self._leave_retry = self.again = None
        self.fenced = False
        self._leave_attempts = 0
        self.settled()
        self.move(MemberState.UNSUBSCRIBED, "left")
        if self.topics is not None:
            self.rejoin("subscribed", now)

    def leave_failed(self, final: bool, now: float) -> None:
        """LeaveGroup did not get through; ``final``: nor will it."""
        if final:
            self.left(now)
        else:
            self._leave_retry = now + self.backoff(self._leave_attempts - 1)

    def leaving_deadline(self) -> float | None:
        if self.leave is not None and self._between_commits():
            return self._sync_until
        if self.leave is None or not self._sending():
            return None
        if self.waits_for(Role.JOIN):
            return self._member_id_until
        if self._leave_retry is None:
            return self.leave.deadline
        return min(self.leave.deadline, self._leave_retry)

    def tick_leaving(self, now: float) -> None:
        if self.leave is None or not self._sending():
            return
        if self.waits_for(Role.JOIN):
            if now >= self._member_id_until:
                self.left(now)
        elif now >= self.leave.deadline:
            self.left(now)
        elif self._leave_retry is not None and now >= self._leave_retry:
            self.send_leave(self.leave, now)

    def _sending(self) -> bool:
        """The callbacks are done; LeaveGroup is all that is left."""
        return self.state is MemberState.LEAVING and not self.waits_for(Role.CALLBACK)
