"""The way out of a group: the last callback, then LeaveGroup."""

from __future__ import annotations

import logging
import random

from kohort.coordinator_client._commands import CallLost, CallRevoked, DropCoordinator, LeaveGroup
from kohort.coordinator_client._consumer_protocol import Members
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._events import LeaveRequested
from kohort.coordinator_client._member import NO_GENERATION, NO_PARTITIONS, MemberSettings, Role
from kohort.coordinator_client._state import MemberState
from kohort.coordinator_client._syncing import Syncing
from kohort.errors import error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from kohort.transport import escaped

logger = logging.getLogger(__name__)

LEAVE_MIN_SECONDS = 0.5
"""Seconds that LeaveGroup gets even when the callbacks took all of the time."""
MEMBER_ID_WAIT_SECONDS = 0.5
"""Seconds to wait for the member id that a first JoinGroup has asked for. Until it has left or its
session has expired, the coordinator holds up everybody's rebalance for whom it gave an id to."""

SYNC_WAIT_SECONDS = 1.0
"""Seconds that a member which leaves and owns partitions (cooperative) goes on with a rebalance.
The coordinator refuses its last commit between the end of the join round and SyncGroup."""

EXCHANGE = frozenset({MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING})
"""States from JoinGroup to the response of SyncGroup."""


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
        self._parting = False
        """The last callback runs while a rebalance goes on."""

    def leave_requested(self, event: LeaveRequested, now: float) -> None:
        self.topics = None
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.LEAVING):
            return
        self.leave = event
        self._sync_until = min(now + SYNC_WAIT_SECONDS, event.deadline)

    def go_on_leaving(self, now: float) -> None:
        """After each event: begin to leave, unless something has to come first."""
        if self.leave is None or self.state is MemberState.LEAVING:
            return
        if self.waits_for(Role.CALLBACK):
            if self._parting and not self._rebalances_on(now):
                self._stop_rebalance(self.leave)
            return
        if self._rebalances_on(now):
            if self.state is MemberState.JOINING:
                self._parting = True
                self._call_back_last()
            return
        known = self.member_id and self.leave.leave_group
        if self.state is MemberState.FAILED and not known:
            self.move(MemberState.UNSUBSCRIBED, self.leave.reason)
            self.leave = None
            return
        self.start_leaving(now)

    @property
    def is_finishing_rebalance(self) -> bool:
        """The member leaves, and goes on with a rebalance so that a refused commit gets through."""
        return self.leave is not None and self.state in EXCHANGE and bool(self.owned)

    def _rebalances_on(self, now: float) -> bool:
        """A rebalance goes on that decides in which generation the last commit is taken.

        While JoinGroup is in flight, the coordinator takes commits of the old generation until the
        join round ends: the last callback runs meanwhile. After that it takes none until SyncGroup
        is answered.
        """
        roles = (Role.JOIN, Role.ASSIGN, Role.SYNC)
        under_way = self.in_generation and any(self.waits_for(role) for role in roles)
        return self.is_finishing_rebalance and under_way and now < self._sync_until

    def _stop_rebalance(self, request: LeaveRequested) -> None:
        """Take no further step of the rebalance; the last callback may still run."""
        self.retry_at = None
        self.forget(Role.POLL, Role.ASSIGN, Role.SYNC)
        if self.member_id or not request.leave_group:
            self.forget(Role.JOIN)
        self.move(MemberState.LEAVING, request.reason)

    def join_answered(
        self, response: JoinGroupResponse, members: Members | None, now: float
    ) -> None:
        if self.leave is not None:
            # After a generation without this member, its partitions may be another member's.
            if response.error_code or response.generation_id != self.generation + 1:
                return
        super().join_answered(response, members, now)

    def sync_answered(self, response: SyncGroupResponse, now: float) -> None:
        if self.leave is not None:
            self._sync_until = now  # what it assigns is of no interest any more
        if self.leave is None or response.error_code:
            super().sync_answered(response, now)

    def start_leaving(self, now: float) -> None:
        """The last callback, while heartbeats go on; then LeaveGroup."""
        request = self.leave
        assert request is not None
        self._member_id_until = now + MEMBER_ID_WAIT_SECONDS
        self._stop_rebalance(request)
        if self.owned:
            self._call_back_last()
        else:
            self.send_leave(request, now)

    def _call_back_last(self) -> None:
        owned, self.owned_after = self.owned, NO_PARTITIONS
        token = self.start(Role.CALLBACK)
        self.emit(CallRevoked(token, owned) if self.in_generation else CallLost(token, owned))

    def send_leave(self, request: LeaveRequested, now: float) -> None:
        self._leave_retry = None
        self.heartbeats.stop()
        if self.waits_for(Role.JOIN) and now < self._member_id_until:
            return  # its answer brings the member id
        if not self.member_id or not request.leave_group:
            self.left(now)
            return
        if not self._leave_attempts:
            deadline = max(request.deadline, now + LEAVE_MIN_SECONDS)
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
        if action is CoordinatorAction.REDISCOVER:
            self.emit(DropCoordinator(f"LeaveGroup was answered {error_name(code)}"))
        if action in (CoordinatorAction.REDISCOVER, CoordinatorAction.RETRY):
            self._leave_retry = now + self.backoff(self._leave_attempts - 1)
            return
        if action is CoordinatorAction.FAIL:
            logger.warning(
                "[%s] leaving: %s",
                self.settings.group_id,
                error_for(ApiKey.LEAVE_GROUP, code, self.settings.group_id),
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
        self.is_fenced = False
        self._leave_attempts = 0
        self._parting = False
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
        if self.is_finishing_rebalance:
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
