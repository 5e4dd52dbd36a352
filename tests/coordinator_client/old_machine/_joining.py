"""The first half of a rebalance: the wait for poll(), the callback before JoinGroup, JoinGroup."""

from __future__ import annotations

import logging
import random
import weakref
from abc import ABC, abstractmethod

from kohort.coordinator_client._commands import (
    AwaitPoll,
    CallLost,
    CallRevoked,
    DropCoordinator,
    JoinGroup,
    LeaveGroup,
    ReportFailure,
    StopDelivery,
)
from kohort.coordinator_client._consumer_protocol import Members
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._partition_text import describe
from kohort.coordinator_client._state import MemberState
from kohort.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupError,
    KafkaError,
    error_name,
)
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse
from kohort.transport import escaped
from kohort.types import TopicPartition
from tests.coordinator_client.old_machine._heartbeating import Heartbeats
from tests.coordinator_client.old_machine._member import (
    NO_GENERATION,
    MemberData,
    MemberSettings,
    Role,
)

logger = logging.getLogger(__name__)

REFUSED_SECONDS = 10.0
"""Longest pause between two attempts to join a group without the required permission."""
MANY_CHANGES = 20
"""Maximum number of topics that the reason of a rebalance names."""


class Joining(MemberData, ABC):
    """The steps until the response to JoinGroup, and the events that restart them."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.heartbeats = Heartbeats(weakref.proxy(self))
        self.retry_at: float | None = None
        """Time of the next JoinGroup retry."""
        self.joined_topics: frozenset[str] = frozenset()
        """Subscribed topics of the latest JoinGroup."""
        self.due_at = 0.0
        self.began_at: float | None = None
        self.before: frozenset[TopicPartition] = frozenset()
        """Owned partitions at the begin of the rebalance."""
        self.join_reason = ""
        self.owned_after: frozenset[TopicPartition] = frozenset()
        """Owned partitions after the callback in progress."""
        self.failure: Exception | None = None
        """An error to report after the callback for the lost partitions."""
        self.join_obstruction: str | None = None
        """Reason why JoinGroup must be retried, or None after a success."""
        self.last_failure: str | None = None
        """The latest reported error, or None after a complete rebalance."""
        self.denied_operation: str | None = None
        """Operation on the group that the latest error reports as denied."""
        self.is_fenced = False
        self.failed_at = 0.0
        self.retry_failed_at = 0.0
        self.failures = 0
        self._attempts = 0

    # --- a rebalance is due ---------------------------------------------------------------------

    def rejoin(self, reason: str, now: float) -> None:
        """Schedule a rebalance, which begins when the caller is inside poll()."""
        self.join_reason, self.due_at = reason, now
        self.move(MemberState.JOIN_PENDING, reason)
        self.await_poll()

    def subscription_change(self) -> str:
        """Return the reason of a rebalance after a subscription change."""
        topics = self.topics or frozenset()
        changes = [f"{name} added" for name in sorted(topics - self.joined_topics)]
        changes += [f"{name} removed" for name in sorted(self.joined_topics - topics)]
        if len(changes) > MANY_CHANGES:
            changes[MANY_CHANGES:] = [f"{len(changes) - MANY_CHANGES} more"]
        return f"the subscription changed: {', '.join(changes)}"

    def await_poll(self) -> None:
        if not self.waits_for(Role.POLL):
            self.emit(AwaitPoll(self.start(Role.POLL)))

    def prepare(self, now: float) -> None:
        """Run the callback that must precede JoinGroup, else join. The caller is inside poll()."""
        if self.began_at is None:
            self.began_at, self.before = now, self.owned
        partitions = self._to_give_up()
        if partitions:
            lost = not self.in_generation
            self.move(MemberState.REVOKING, "lost" if lost else "revoked")
            token = self.start(Role.CALLBACK)
            self.owned_after = self.owned - partitions
            self.emit(CallLost(token, partitions) if lost else CallRevoked(token, partitions))
        elif self.failure is not None:
            self._enter_failed(now)
        else:
            self.move(MemberState.JOINING, self.join_reason)
            self.send_join()

    def _to_give_up(self) -> frozenset[TopicPartition]:
        """Return the partitions to revoke or to lose before JoinGroup. None need no callback."""
        if not self.in_generation or not self.settings.cooperative:
            return self.owned
        wanted = self.topics or frozenset()
        return frozenset(tp for tp in self.owned if tp.topic not in wanted)

    # --- JoinGroup ------------------------------------------------------------------------------

    def send_join(self) -> None:
        self.retry_at = None
        self.joined_topics = self.topics or frozenset()
        self.emit(
            JoinGroup(
                token=self.start(Role.JOIN),
                member_id=self.member_id,
                generation=self.generation,
                topics=self.joined_topics,
                owned=self.owned,
                reason=self.join_reason,
            )
        )

    def join_again(self, now: float, *, wait: bool = False) -> None:
        """Retry JoinGroup. Only a first retry is immediate, to avoid a flood of requests."""
        self.forget(Role.JOIN)
        self._attempts += 1
        if self._attempts == 1 and not wait:
            self.send_join()
        else:
            self.retry_at = now + self.backoff(self._attempts - 1)

    def join_answered(
        self, response: JoinGroupResponse, members: Members | None, now: float
    ) -> None:
        code = response.error_code
        self.join_obstruction = f"JoinGroup returned {error_name(code)}" if code else None
        match action_for(ApiKey.JOIN_GROUP, code):
            case CoordinatorAction.PROCEED:
                self.joined(response, members, now)
            case CoordinatorAction.TAKE_MEMBER_ID if response.member_id:
                self.member_id = response.member_id
                self.join_again(now)
            case CoordinatorAction.REDISCOVER:
                self.emit(DropCoordinator(f"JoinGroup returned {error_name(code)}"))
                self.join_again(now, wait=True)
            case CoordinatorAction.LOSE_MEMBER:
                self.lose(f"JoinGroup returned {error_name(code)}", now)
            case CoordinatorAction.LOSE_GENERATION:
                self.lose(f"JoinGroup returned {error_name(code)}", now, keep_member_id=True)
            case CoordinatorAction.FENCED | CoordinatorAction.FAIL:
                self.fail(error_for(ApiKey.JOIN_GROUP, code, self.settings.group_id), now)
            case _:
                self.join_again(now, wait=True)

    @abstractmethod
    def joined(self, response: JoinGroupResponse, members: Members | None, now: float) -> None:
        """Handle a successful response to JoinGroup."""

    @abstractmethod
    def stop_leading(self) -> None:
        """Stop to be the leader, if this member is one."""

    # --- restarts and failures ------------------------------------------------------------------

    def restart(self, reason: str, now: float, *, wait: bool = False) -> None:
        """Restart the rebalance in progress. Wait for poll() only if a callback must come first."""
        self.forget(Role.JOIN, Role.ASSIGN, Role.SYNC)
        self.retry_at = None
        self.join_reason = reason
        if self._to_give_up():
            self.move(MemberState.JOIN_PENDING, reason)
            self.await_poll()
        elif self.failure is not None:
            self._enter_failed(now)
        else:
            if self.state is not MemberState.JOINING:
                self.move(MemberState.JOINING, reason)
            self.join_again(now, wait=wait)

    def lose(self, reason: str, now: float, *, keep_member_id: bool = False) -> None:
        """End the membership, because the group has continued without this member.

        Others may own its partitions already.
        """
        group = self.settings.group_id
        if self.owned:
            logger.warning(
                "[%s] membership lost, because %s. Lost partitions: %s",
                group,
                escaped(reason),
                describe(self.owned),
            )
            # The callback waits for poll(), which must not return records fetched since.
            self.emit(StopDelivery(self.owned))
        else:
            logger.debug("[%s] membership reset: %s", group, escaped(reason))
        self.generation, self.protocol = NO_GENERATION, None
        self.losses += 1
        if not keep_member_id:
            self.member_id = ""
        self.heartbeats.stop()
        self.stop_leading()
        match self.state:
            case MemberState.STABLE:
                self.rejoin(reason, now)
            case MemberState.JOINING | MemberState.ASSIGNING | MemberState.SYNCING:
                self.restart(reason, now)
            case MemberState.RECONCILING if not self.waits_for(Role.CALLBACK):
                self.rejoin(reason, now)
            case _:
                self.join_reason = reason  # the callback or the wait for poll() continues

    def fail(self, error: Exception, now: float, *, leave: bool = False) -> None:
        """End the membership and report the error after the callback for the lost partitions.

        With ``leave``, send LeaveGroup, because the coordinator still waits for this member.
        Otherwise keep the member id. With a new one the group would wait for the old one until its
        session expires.
        """
        leave = leave and bool(self.member_id) and not self.settings.static
        if leave:
            self.emit(LeaveGroup(self.new_token(), self.member_id, f"failed: {error}"))
        self.failure = error
        self.is_fenced = isinstance(error, FencedInstanceIdError)
        self.lose(str(error), now, keep_member_id=not (leave or self.is_fenced))

    def _enter_failed(self, now: float) -> None:
        error = self.failure or GroupError("internal error in kohort: the membership failed")
        self.failure = None
        self.failures += 1
        self.last_failure = f"{type(error).__name__}: {error}"
        self.denied_operation = None
        if isinstance(error, GroupAuthorizationFailedError):
            self.denied_operation = error.operation
        self.failed_at = now
        self.retry_failed_at = now + self._pause_after(error)
        self.began_at = None
        self.move(MemberState.FAILED, str(error))
        self.emit(ReportFailure(error if isinstance(error, KafkaError) else GroupError(str(error))))

    def _pause_after(self, error: Exception) -> float:
        """Return the seconds before a retry. A missing permission makes them longer."""
        pause = self.backoff(self.failures)
        if isinstance(error, GroupAuthorizationFailedError):
            return max(pause, min(2.0 ** (self.failures - 1), REFUSED_SECONDS))
        return pause

    def settled(self) -> None:
        """Reset counts and errors after a complete rebalance."""
        self._attempts = self.failures = 0
        self.began_at = self.last_failure = self.denied_operation = None
