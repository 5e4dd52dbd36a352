"""The handler of heartbeat responses and of other signals of a consumer group member."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator_client.consumer._failures import ConsumerFailures, leave_command
from kohort.coordinator_client.consumer._heartbeats import NEXT_INTERVALS, ConsumerHeartbeats
from kohort.coordinator_client.consumer._member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMemberData,
)
from kohort.coordinator_client.consumer._reactions import (
    CONSUMER_REACTIONS,
    ConsumerReaction,
    ConsumerSignal,
)
from kohort.coordinator_client.consumer._reconciliation import Reconciliation
from kohort.coordinator_client.consumer._target import TargetAssignment
from kohort.coordinator_client.machine._commands import DropCoordinator
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import (
    EpochRejected,
    Event,
    ResponseReceived,
)
from kohort.coordinator_client.machine._failure_reports import error_of, is_final
from kohort.coordinator_client.machine._pending_commands import PendingCommands
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.coordinator_client.machine._refusal_series import RefusalSeries
from kohort.errors import ErrorCode, error_name
from kohort.logs import get_logger
from kohort.protocol import ApiKey
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse
from kohort.types import RebalanceCause

logger = get_logger(__name__)

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
FIRST_EPOCH = 1
"""Smallest epoch of a member. Epochs below it belong to requests that join or leave."""
CAUSES: dict[ConsumerSignal, RebalanceCause] = {
    ConsumerSignal.SUBSCRIBED: "subscribed",
    ConsumerSignal.RESUBSCRIBED: "subscribed",
    ConsumerSignal.POLL_OVERDUE: "poll_overdue",
}
"""Causes of the rebalances that signals begin. The failures set those of the others."""


class ConsumerSignals:
    """The handler of one member's signals, except LEAVE."""

    def __init__(
        self,
        member: ConsumerMemberData,
        pending: PendingCommands,
        heartbeats: ConsumerHeartbeats,
        target: TargetAssignment,
        reconciliation: Reconciliation,
        failures: ConsumerFailures,
        history: RebalanceHistory,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._target = target
        self._reconciliation = reconciliation
        self._failures = failures
        self._history = history
        self._refusals = RefusalSeries(member.settings.session_timeout)
        self._next_reason: str | None = None
        """Reason of the next assignment, if this member has caused it."""
        self._reported_at: float | None = None
        """Time of the latest report of an error that leaves the membership as it is."""

    def react(self, signal: ConsumerSignal, reason: str, *, needs_poll: bool = True) -> None:
        """Do what the table says for a signal in the member's state."""
        match CONSUMER_REACTIONS[self._member.state, signal]:
            case ConsumerReaction.JOIN:
                self._member.cause = CAUSES.get(signal, self._member.cause)
                self.forget_refusals()
                self._reconciliation.start(reason, needs_poll=needs_poll)
            case ConsumerReaction.HEARTBEAT:
                if signal is ConsumerSignal.SUBSCRIBED:
                    self._next_reason = reason
                self._heartbeats.schedule.request(self._pending.now)
            case ConsumerReaction.CONTINUE if signal is ConsumerSignal.SUBSCRIBED:
                if self._reported_at is not None:  # the coordinator refused the earlier topics
                    self._heartbeats.schedule.request(self._pending.now)
            case _:
                pass
        if signal is ConsumerSignal.SUBSCRIBED:
            self._reported_at = None

    def forget_refusals(self) -> None:
        """Forget the refused heartbeats, because one was accepted or another membership follows."""
        self._reported_at = None
        self._refusals.end()

    def _matters(self, signal: ConsumerSignal) -> bool:
        return CONSUMER_REACTIONS[self._member.state, signal] is not ConsumerReaction.IGNORE

    def lose(self, signal: ConsumerSignal, reason: str, *, needs_poll: bool = False) -> None:
        """End the membership, unless the state ignores the signal."""
        if self._matters(signal):
            self._failures.lose(reason)
            self._member.cause = CAUSES.get(signal, "removed")
            self._history.reason = reason
            self.react(signal, reason, needs_poll=needs_poll)

    def fail(self, error: Exception, *, leave: bool = False) -> None:
        """End the membership with an error to report, unless the state ignores that."""
        if self._matters(ConsumerSignal.FAILED):
            self._failures.fail(error, leave=leave)
            self._history.reason = str(error)
            self.react(ConsumerSignal.FAILED, str(error), needs_poll=False)

    # --- heartbeats -----------------------------------------------------------------------------

    def coordinator_found(self) -> None:
        """Send all fields, because another coordinator may have this member now."""
        self._heartbeats.request_full()
        self._refusals.end()

    def heartbeat_completed(self, event: Event) -> None:
        """Handle the response to a heartbeat, or its error."""
        match event:
            case ResponseReceived(_, ConsumerGroupHeartbeatResponse() as response):
                self._heartbeats.schedule.answered()
                if response.error_code:
                    is_current = self._heartbeats.has_sent_current
                    self._heartbeats.failed(response.error_code)
                    self._heartbeat_refused(
                        response.error_code, response.error_message, is_current=is_current
                    )
                elif response.member_epoch < FIRST_EPOCH:
                    self._heartbeats.failed()
                    self._refusals.end()
                    words = f"ConsumerGroupHeartbeat returned member epoch {response.member_epoch}"
                    self._note_obstruction(words)
                    self._heartbeats.schedule.repeat(self._pending.now)
                else:
                    self._heartbeat_accepted(response)
            case _:
                self._heartbeats.failed()
                self._refusals.end()
                error = error_of(event)
                if is_final(error):
                    self.fail(error)
                else:
                    self._note_obstruction(f"ConsumerGroupHeartbeat failed: {error}")
                    self._heartbeats.schedule.repeat(self._pending.now, at_once=True)

    def _heartbeat_accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        member, heartbeats, target = self._member, self._heartbeats, self._target
        was_in_group = member.in_group
        self.forget_refusals()
        self._failures.join_obstruction = None
        member.generation = response.member_epoch
        assignment = response.assignment
        was_current = heartbeats.is_current
        heartbeats.accepted(
            response.heartbeat_interval_ms / 1000, has_assignment=assignment is not None
        )
        if assignment is not None and self._matters(ConsumerSignal.ASSIGNED):
            if was_in_group and not self._history.is_begun:
                self._history.reason = self._next_reason or "the assignment changed"
                member.cause = "subscribed" if self._next_reason else "group_changed"
                self._history.note_due(self._pending.now)
            self._history.asked_at = self._pending.now
            self._next_reason = None
            partitions = (
                (topic.topic_id, number)
                for topic in assignment.topic_partitions
                for number in topic.partitions
                if number >= 0
            )
            target.replace(partitions, heartbeats.joined_regex)
            self._reconciliation.withhold()
        elif not was_current:
            target.keep(heartbeats.joined_regex)
        if was_in_group and not was_current:
            heartbeats.schedule.follow_up(self._pending.now, NEXT_INTERVALS)

    def _heartbeat_refused(self, code: int, message: str | None, *, is_current: bool) -> None:
        words = f"ConsumerGroupHeartbeat returned {error_name(code)}"
        member, schedule, now = self._member, self._heartbeats.schedule, self._pending.now
        is_joining = not member.in_group
        if self._refusals.allows_retry(code, now):
            self._note_obstruction(words)
            if code == ErrorCode.UNRELEASED_INSTANCE_ID:
                self._release_own_instance()
            schedule.repeat(now)
            return
        if is_joining and code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._replace_member_id(words)
            return
        action = action_for(API, code)
        if action is CoordinatorAction.LOSE_MEMBER and is_joining:
            action = CoordinatorAction.FAIL
        match action:
            case CoordinatorAction.LOSE_MEMBER:
                self.lose(ConsumerSignal.LOST, words)
            case CoordinatorAction.FAIL | CoordinatorAction.FENCED:
                error = error_for(API, code, member.settings.group_id, message)
                if is_joining and not member.settings.static:
                    member.is_known = False
                self.fail(error, leave=code != ErrorCode.GROUP_AUTHORIZATION_FAILED)
            case CoordinatorAction.REPORT:
                if not is_current:  # the refused subscription was replaced
                    schedule.request(now)
                    return
                if self._must_report():
                    self._reported_at = now
                    error = error_for(API, code, member.settings.group_id, message)
                    self._failures.notify(error)
                schedule.postpone(now)
            case _:
                has_moved = action is CoordinatorAction.REDISCOVER
                if has_moved:
                    self._pending.emit(DropCoordinator(words))
                self._note_obstruction(words)
                schedule.repeat(now, at_once=has_moved)

    def _must_report(self) -> bool:
        """Return True for the first error of a series, and for the first one after the session."""
        if self._reported_at is None:
            return True
        return self._reported_at < self._heartbeats.schedule.confirmed_until <= self._pending.now

    def _release_own_instance(self) -> None:
        """Release the instance id if this member may have it.

        It has it after a loss, and after a join without a response.

        The coordinator refuses a join under an instance id that is in use, also to its own member.
        The release keeps the partitions, and is refused to any other member id.
        """
        if self._member.may_hold_instance:
            token = self._pending.new_token()
            self._pending.emit(leave_command(self._member, token, LEAVE_STATIC_EPOCH))

    def _replace_member_id(self, words: str) -> None:
        """Leave under the old member id and join under a new one.

        Brokers before 4.3 refuse a join under the id of a member that they have (KAFKA-19233).
        """
        member = self._member
        self._note_obstruction(words)
        self._pending.emit(leave_command(member, self._pending.new_token(), LEAVE_EPOCH))
        member.member_id = ""
        self._heartbeats.schedule.repeat(self._pending.now, at_once=True)

    def _note_obstruction(self, words: str) -> None:
        if not self._member.in_group:
            self._failures.join_obstruction = words

    # --- commits --------------------------------------------------------------------------------

    def topic_ids_seen(self, ids: Mapping[str, bytes]) -> None:
        """Stop the delivery of recreated topics, and request their new assignment at once."""
        self._target.note_current_ids(ids)
        if self._matters(ConsumerSignal.RECREATED) and self._reconciliation.withhold():
            self.react(ConsumerSignal.RECREATED, "a topic was deleted and created again")
            self._heartbeats.schedule.follow_up(self._pending.now, NEXT_INTERVALS)

    def epoch_rejected(self, event: EpochRejected) -> None:
        """Send a heartbeat at once, unless the epoch has changed meanwhile.

        Its response has the new epoch, or shows that the member was removed.
        """
        if event.epoch == self._member.generation:
            self.react(ConsumerSignal.EPOCH_REJECTED, "the coordinator rejected the member epoch")
