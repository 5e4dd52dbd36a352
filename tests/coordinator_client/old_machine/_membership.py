"""The membership of the classic protocol, a state machine without I/O, clock and threads."""

from __future__ import annotations

import logging
import random
from typing import Protocol

from kohort.coordinator_client._commands import (
    Command,
    DropCoordinator,
    LeaveGroup,
)
from kohort.coordinator_client._consumer_protocol import Members
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._events import (
    AssignmentMade,
    CallbackDone,
    CommandFailed,
    CommitRejected,
    CoordinatorFound,
    Event,
    LeaveRequested,
    PollEntered,
    RejoinRequested,
    ResponseReceived,
    Subscribed,
    Tick,
    TopicsChanged,
)
from kohort.coordinator_client._state import MemberState
from kohort.errors import (
    AssignorError,
    BrokerResponseError,
    KafkaError,
    MessageEncodeError,
    ProtocolError,
    UnsupportedVersionError,
    error_name,
)
from kohort.protocol import ApiKey, Response
from kohort.protocol.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kohort.types import TopicPartition
from tests.coordinator_client.old_machine._leaving import Leaving
from tests.coordinator_client.old_machine._member import MemberSettings, Role

logger = logging.getLogger(__name__)

SHARE_OF_WARNING = 0.8
"""Fraction of ``max_poll_interval_ms`` without a poll() after which a warning is logged."""
FAILED_CHECK = 0.5
"""Seconds between checks for a poll() of the caller after an error."""


class Membership(Protocol):
    """The part of a membership that the driver and the offsets use, for any group protocol."""

    @property
    def state(self) -> MemberState: ...
    @property
    def topics(self) -> frozenset[str] | None: ...
    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def owned(self) -> frozenset[TopicPartition]: ...
    @property
    def losses(self) -> int: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def is_finishing_rebalance(self) -> bool: ...

    @property
    def confirmed_until(self) -> float: ...

    def handle(self, event: Event, now: float) -> list[Command]: ...
    def next_deadline(self) -> float | None: ...


class ClassicMembership(Leaving):
    """A member of a classic group, with JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

    It raises no error for invalid or missing responses. Every command with a token must be
    completed by an event with that token.
    """

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self._last_poll = 0.0
        self._warned = False

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle an event and return the commands to run. ``now`` must not decrease."""
        match event:
            case Subscribed(topics):
                self._subscribed(topics, now)
            case LeaveRequested():
                self.leave_requested(event, now)
            case RejoinRequested(reason):
                self.request_rebalance(reason, now)
            case TopicsChanged(topics, covered):
                self.topics_changed(topics, covered, now)
            case CoordinatorFound():
                self.heartbeats.found(now)
            case CommitRejected():
                self._commit_rejected(event, now)
            case Tick(last_poll):
                self._tick(last_poll, now)
            case _:
                role = self.finish(event.token)
                if role is not None:
                    self._done(role, event, now)
        self.go_on_leaving(now)
        return self.take_commands()

    @property
    def confirmed_until(self) -> float:
        """The time until which the session prevents that others own this member's partitions."""
        return self.heartbeats.confirmed_until

    def next_deadline(self) -> float | None:
        """Return the time of the next :class:`Tick`, or None to wait for another event."""
        times = [self.heartbeats.deadline(), self.retry_at, self.leaving_deadline()]
        if self._must_poll():
            share = 1.0 if self._warned else SHARE_OF_WARNING
            times.append(self._last_poll + share * self.settings.max_poll_interval)
        if self.state is MemberState.FAILED and not self.is_fenced:
            times.append(self.retry_failed_at)
        return min((time for time in times if time is not None), default=None)

    # --- requests of the caller -----------------------------------------------------------------

    def _subscribed(self, topics: frozenset[str], now: float) -> None:
        changed, self.topics = topics != self.topics, topics
        match self.state:
            case MemberState.UNSUBSCRIBED | MemberState.FAILED:
                self.is_fenced = False
                self.rejoin("subscribed", now)
            case MemberState.STABLE if changed:
                self.rejoin(self.subscription_change(), now)
            case _:
                pass  # the rebalance in progress, or the rejoin after leaving, uses the new topics

    # --- responses ------------------------------------------------------------------------------

    def _done(self, role: Role, event: Event, now: float) -> None:
        match event:
            case PollEntered(_, last_poll):
                self._polled(now if last_poll is None else last_poll)
                if self.state is MemberState.RECONCILING:
                    self.reconcile(now)
                elif self.state is MemberState.JOIN_PENDING:
                    self.prepare(now)
            case CallbackDone():
                self.owned = self.owned_after
                self._called_back(now)
            case ResponseReceived(_, response, members):
                self._answered(role, response, members, now)
            case AssignmentMade():
                self.assignment_made(event)
            case CommandFailed(_, error):
                self._failed(role, error, now)

    def _called_back(self, now: float) -> None:
        if self.state is MemberState.LEAVING and self.leave is not None:
            self.send_leave(self.leave, now)
        elif self.leave is not None:
            self.start_leaving(now)
        elif self.state is MemberState.REVOKING:
            self.prepare(now)
        elif self.state is MemberState.RECONCILING:
            self.reconciled(now)

    def _answered(
        self, role: Role, response: Response, members: Members | None, now: float
    ) -> None:
        match response:
            case JoinGroupResponse(member_id=member_id) if self.state is MemberState.LEAVING:
                self.late_join_answered(member_id, now)
            case JoinGroupResponse():
                self.join_answered(response, members, now)
            case SyncGroupResponse():
                self.sync_answered(response, now)
            case HeartbeatResponse():
                self._heartbeat_answered(response.error_code, now)
            case LeaveGroupResponse():
                self.leave_answered(response, now)
            case _:
                error = TypeError(f"internal error in kohort: unexpected response {response!r}")
                self._failed(role, error, now)

    def _heartbeat_answered(self, code: int, now: float) -> None:
        self.heartbeats.answered()
        action = action_for(ApiKey.HEARTBEAT, code)
        if action in (CoordinatorAction.PROCEED, CoordinatorAction.REJOIN):
            self.heartbeats.confirmed()
        if self.state in (MemberState.JOINING, MemberState.LEAVING) and code not in (0, 82):
            return  # the response to JoinGroup has the result, or it does not matter
        words = f"Heartbeat returned {error_name(code)}"
        match action:
            case CoordinatorAction.PROCEED:
                pass
            case CoordinatorAction.REJOIN:
                if self.state in (MemberState.STABLE, MemberState.RECONCILING):
                    self.request_rebalance("the group rebalances", now)
            case CoordinatorAction.REDISCOVER:
                self.emit(DropCoordinator(words))
                self.heartbeats.retry(now, at_once=True)
            case CoordinatorAction.LOSE_MEMBER:
                self.lose(words, now)
            case CoordinatorAction.LOSE_GENERATION:
                self.lose(words, now, keep_member_id=True)
            case CoordinatorAction.FENCED | CoordinatorAction.FAIL:
                self.fail(error_for(ApiKey.HEARTBEAT, code, self.settings.group_id), now)
            case _:
                self.heartbeats.retry(now)

    def _failed(self, role: Role, error: Exception, now: float) -> None:
        """Retry a failed command, or report the error if a retry does not fix it."""
        if role is Role.CALLBACK or role is Role.POLL:
            self._done(role, CallbackDone(0) if role is Role.CALLBACK else PollEntered(0), now)
        elif role is Role.JOIN and self.state is MemberState.LEAVING:
            self.late_join_answered("", now)
        elif role is Role.JOIN and self.leave is not None:
            pass  # the last commit uses the old generation
        elif role is Role.LEAVE:
            self.leave_failed(_is_final(error), now)
        elif role is Role.ASSIGN:
            if not isinstance(error, AssignorError) and not _is_final(error):
                self.restart(f"fetching the topics to assign failed: {error}", now, wait=True)
            else:
                self.fail(error, now, leave=True)
        elif _is_final(error):
            self.fail(error, now)
        elif role is Role.HEARTBEAT:
            self.heartbeats.retry(now)
        elif isinstance(error, ProtocolError):
            self.fail(error, now)
        elif role is Role.JOIN:
            self.join_obstruction = f"JoinGroup failed: {error}"
            self.join_again(now, wait=True)
        else:
            self.restart(f"SyncGroup failed: {error}", now, wait=True)

    def _commit_rejected(self, event: CommitRejected, now: float) -> None:
        """Handle a rejected commit, which may be the first sign of a rebalance or a lost member."""
        same = (event.generation, event.member_id) == (self.generation, self.member_id)
        if not same or self.state in (
            MemberState.UNSUBSCRIBED,
            MemberState.JOINING,
            MemberState.LEAVING,
            MemberState.FAILED,
        ):
            return
        words = f"OffsetCommit returned {error_name(event.code)}"
        match action_for(ApiKey.OFFSET_COMMIT, event.code):
            case CoordinatorAction.REJOIN:
                self.request_rebalance(words, now)
            case CoordinatorAction.LOSE_MEMBER:
                self.lose(words, now)
            case CoordinatorAction.LOSE_GENERATION:
                self.lose(words, now, keep_member_id=True)
            case CoordinatorAction.FENCED:
                self.fail(error_for(ApiKey.OFFSET_COMMIT, event.code, self.settings.group_id), now)
            case _:
                pass

    # --- time -----------------------------------------------------------------------------------

    def _must_poll(self) -> bool:
        """True if the caller must poll, because the coordinator has this member in a generation."""
        match self.state:
            case MemberState.UNSUBSCRIBED | MemberState.LEAVING | MemberState.FAILED:
                return False
            case MemberState.JOINING | MemberState.ASSIGNING | MemberState.SYNCING:
                return self.leave is None
            case _:
                return self.in_generation

    def _tick(self, last_poll: float, now: float) -> None:
        self._polled(last_poll)
        if self._must_poll():
            self._check_poll(now - self._last_poll, now)
        self.tick_leaving(now)
        if self.heartbeats.tick(now) and self.state in (MemberState.JOINING, MemberState.SYNCING):
            if self.retry_at is None:
                self.restart("the coordinator did not respond for a session timeout", now)
        if self.retry_at is not None and now >= self.retry_at:
            self.send_join()
        if self.state is MemberState.FAILED and not self.is_fenced:
            self._tick_failed(now)

    def _polled(self, last_poll: float) -> None:
        if last_poll > self._last_poll:
            self._last_poll, self._warned = last_poll, False

    def _check_poll(self, spent: float, now: float) -> None:
        limit = self.settings.max_poll_interval
        if now >= self._last_poll + limit:
            self._poll_overdue(spent, now)
        elif not self._warned and now >= self._last_poll + SHARE_OF_WARNING * limit:
            self._warned = True
            logger.warning(
                "[%s] poll() was not called for %.1f s. After max_poll_interval_ms (%d), this "
                "consumer leaves its group",
                self.settings.group_id,
                spent,
                round(limit * 1000),
            )

    def _poll_overdue(self, spent: float, now: float) -> None:
        logger.warning(
            "[%s] leaving the group: poll() was not called for %.1f s, longer than "
            "max_poll_interval_ms %d. Set a lower max_poll_records or raise max_poll_interval_ms",
            self.settings.group_id,
            spent,
            round(self.settings.max_poll_interval * 1000),
        )
        reason = f"poll() was not called for {spent:.1f} s"
        if self.member_id and not self.settings.static:
            self.emit(LeaveGroup(self.new_token(), self.member_id, reason))
        in_exchange = self.state in (
            MemberState.JOINING,
            MemberState.ASSIGNING,
            MemberState.SYNCING,
        )
        if in_exchange:  # unlike after an error, nothing is sent before the next poll()
            self.forget(Role.JOIN, Role.ASSIGN, Role.SYNC)
            self.retry_at = None
            self.rejoin(reason, now)
        self.lose(reason, now)

    def _tick_failed(self, now: float) -> None:
        """Rejoin if the caller polled after the error was reported and the pause has passed."""
        if now < self.retry_failed_at:
            return
        if self._last_poll > self.failed_at:
            self.rejoin("polled again after an error", now)
        else:
            self.retry_failed_at = now + FAILED_CHECK


def _is_final(error: Exception) -> bool:
    """True if a retry does not fix the error."""
    if isinstance(error, MessageEncodeError | UnsupportedVersionError):
        return True
    if isinstance(error, BrokerResponseError):
        return not error.retriable
    return not isinstance(error, KafkaError | OSError)
