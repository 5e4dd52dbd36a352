"""The last callback and LeaveGroup, after unsubscribe() or close()."""

from __future__ import annotations

import logging
import random

from kohort.coordinator_client._commands import CallLost, CallRevoked, DropCoordinator, LeaveGroup
from kohort.coordinator_client._consumer_protocol import Members
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._events import LeaveRequested
from kohort.coordinator_client._state import MemberState
from kohort.errors import error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from kohort.transport import escaped
from tests.coordinator_client.old_machine._member import (
    NO_GENERATION,
    NO_PARTITIONS,
    MemberSettings,
    Role,
)
from tests.coordinator_client.old_machine._syncing import Syncing

logger = logging.getLogger(__name__)

LEAVE_MIN_SECONDS = 0.5
"""Minimum seconds for LeaveGroup, even if the callbacks took the whole timeout."""
MEMBER_ID_WAIT_SECONDS = 0.5
"""Seconds to wait for the member id of a first JoinGroup in flight.

The coordinator may already have a member with that id. Without its LeaveGroup, the rebalances of
the group wait for it until its session expires.
"""

SYNC_WAIT_SECONDS = 1.0
"""Seconds for which a leaving cooperative member with partitions continues a rebalance.

The coordinator rejects its last commit between the end of the join round and SyncGroup.
"""

EXCHANGE = frozenset({MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING})
"""States from JoinGroup to the response of SyncGroup."""


class Leaving(Syncing):
    """The steps of unsubscribe() and close()."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.leave: LeaveRequested | None = None
        """The caller's request, which waits for a callback in progress."""
        self._leave_retry: float | None = None
        self._leave_attempts = 0
        self._member_id_until = 0.0
        self._sync_until = 0.0
        self._parting = False
        """True while the last callback runs during a rebalance."""

    def leave_requested(self, event: LeaveRequested, now: float) -> None:
        self.topics = None
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.LEAVING):
            return
        self.leave = event
        self._sync_until = min(now + SYNC_WAIT_SECONDS, event.deadline)

    def go_on_leaving(self, now: float) -> None:
        """Begin to leave unless another step must come first. Called after each event."""
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
        """True if a leaving member completes a rebalance, so that its last commit is accepted."""
        return self.leave is not None and self.state in EXCHANGE and bool(self.owned)

    def _rebalances_on(self, now: float) -> bool:
        """True if a rebalance in progress decides the generation of the last commit.

        While JoinGroup is in flight, the coordinator accepts commits of the old generation until
        the join round ends. The last callback runs in that time. After that the coordinator accepts
        no commits until the response to SyncGroup.
        """
        roles = (Role.JOIN, Role.ASSIGN, Role.SYNC)
        under_way = self.in_generation and any(self.waits_for(role) for role in roles)
        return self.is_finishing_rebalance and under_way and now < self._sync_until

    def _stop_rebalance(self, request: LeaveRequested) -> None:
        """Stop the rebalance. The last callback may still run."""
        self.retry_at = None
        self.forget(Role.POLL, Role.ASSIGN, Role.SYNC)
        if self.member_id or not request.leave_group:
            self.forget(Role.JOIN)
        self.move(MemberState.LEAVING, request.reason)

    def join_answered(
        self, response: JoinGroupResponse, members: Members | None, now: float
    ) -> None:
        if self.leave is not None:
            # After a generation without this member, another member may own its partitions.
            if response.error_code or response.generation_id != self.generation + 1:
                return
        super().join_answered(response, members, now)

    def sync_answered(self, response: SyncGroupResponse, now: float) -> None:
        if self.leave is not None:
            self._sync_until = now  # the assignment is not needed
        if self.leave is None or response.error_code:
            super().sync_answered(response, now)

    def start_leaving(self, now: float) -> None:
        """Run the last callback while heartbeats continue, then send LeaveGroup."""
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
            return  # its response has the member id
        if not self.member_id or not request.leave_group:
            self.left(now)
            return
        if not self._leave_attempts:
            deadline = max(request.deadline, now + LEAVE_MIN_SECONDS)
            self.leave = LeaveRequested(request.reason, deadline, True)
        self._leave_attempts += 1
        self.emit(LeaveGroup(self.start(Role.LEAVE), self.member_id, request.reason))

    def late_join_answered(self, member_id: str, now: float) -> None:
        """Handle the end of a JoinGroup that was in flight. ``member_id`` is "" if it failed."""
        self.member_id = member_id
        if self.leave is not None and not self.waits_for(Role.CALLBACK):
            self.send_leave(self.leave, now)

    def leave_answered(self, response: LeaveGroupResponse, now: float) -> None:
        code = response.error_code or next((m.error_code for m in response.members), 0)
        action = action_for(ApiKey.LEAVE_GROUP, code)
        if action is CoordinatorAction.REDISCOVER:
            self.emit(DropCoordinator(f"LeaveGroup returned {error_name(code)}"))
        if action in (CoordinatorAction.REDISCOVER, CoordinatorAction.RETRY):
            self._leave_retry = now + self.backoff(self._leave_attempts - 1)
            return
        if action is CoordinatorAction.FAIL:
            logger.warning(
                "[%s] leaving the group failed: %s",
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
        """Retry LeaveGroup after an error, or end the leaving if the error is ``final``."""
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
        """True if the callbacks are done and only LeaveGroup remains."""
        return self.state is MemberState.LEAVING and not self.waits_for(Role.CALLBACK)
