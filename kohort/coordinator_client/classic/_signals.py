"""The handler of signals and of the responses to heartbeats. It applies the table of reactions."""

from __future__ import annotations

from kohort.coordinator_client.classic._failures import MembershipFailures
from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._member import MemberData
from kohort.coordinator_client.classic._reactions import REACTIONS, Reaction, Signal
from kohort.coordinator_client.classic._rebalance import Rebalance
from kohort.coordinator_client.machine._commands import DropCoordinator
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import CommitRejected, Event, ResponseReceived
from kohort.coordinator_client.machine._failure_reports import error_of, is_final
from kohort.coordinator_client.machine._pending_commands import PendingCommands
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.errors import error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import HeartbeatResponse
from kohort.types import RebalanceCause

HEARTBEAT_SIGNALS = {
    CoordinatorAction.REJOIN: Signal.REBALANCE,
    CoordinatorAction.LOSE_MEMBER: Signal.LOST,
    CoordinatorAction.LOSE_GENERATION: Signal.LOST,
    CoordinatorAction.FENCED: Signal.FATAL,
    CoordinatorAction.FAIL: Signal.FAILED,
}
"""Signals of a heartbeat's response. The heartbeat is repeated for every other error code."""
COMMIT_SIGNALS = {
    CoordinatorAction.REJOIN: Signal.WANTED,
    CoordinatorAction.LOSE_MEMBER: Signal.LOST,
    CoordinatorAction.LOSE_GENERATION: Signal.LOST,
    CoordinatorAction.FENCED: Signal.FAILED,
}
"""Signals of a commit's error code."""

CAUSES: dict[Signal, RebalanceCause] = {
    Signal.SUBSCRIBED: "subscribed",
    Signal.RESUBSCRIBED: "subscribed",
    Signal.REBALANCE: "group_changed",
    Signal.WANTED: "group_changed",
    Signal.SILENT: "removed",
    Signal.POLL_OVERDUE: "poll_overdue",
}
"""Causes of the rebalances that signals begin. The failures set those of the others."""


class SignalHandler:
    """The handler of one member's signals, except LEAVE."""

    def __init__(
        self,
        member: MemberData,
        pending: PendingCommands,
        heartbeats: Heartbeats,
        rebalance: Rebalance,
        failures: MembershipFailures,
        history: RebalanceHistory,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._rebalance = rebalance
        self._failures = failures
        self._history = history

    def react(
        self,
        signal: Signal,
        reason: str,
        *,
        refreshes_topics: bool = True,
        cause: RebalanceCause | None = None,
    ) -> None:
        """Interrupt the rebalance, or start one, as the table says.

        ``refreshes_topics`` is False for a signal from new metadata. ``cause`` replaces that of the
        signal.
        """
        member = self._member
        cause = cause or CAUSES.get(signal) or member.cause
        match REACTIONS[member.state, signal]:
            case Reaction.REJOIN:
                member.cause = cause
                self._rebalance.start(reason, refreshes_topics=refreshes_topics)
            case Reaction.RESTART:
                member.cause = cause
                self._rebalance.restart(reason)
            case Reaction.LATER:
                self._rebalance.next_reason, self._rebalance.next_cause = reason, cause
            case _:
                pass

    def lose(self, signal: Signal, reason: str, *, keep_member_id: bool = False) -> None:
        """End the membership, unless the state ignores the signal."""
        if REACTIONS[self._member.state, signal] is not Reaction.IGNORE:
            self._failures.lose(reason, keep_member_id=keep_member_id)
            self._member.cause = CAUSES.get(signal, "removed")
            self._history.reason = reason
            self.react(signal, reason)

    def fail(self, signal: Signal, error: Exception) -> None:
        """End the membership with an error to report, unless the state ignores the signal."""
        if REACTIONS[self._member.state, signal] is not Reaction.IGNORE:
            self._failures.fail(error)
            self._history.reason = str(error)
            self.react(signal, str(error))

    # --- error codes ----------------------------------------------------------------------------

    def heartbeat_completed(self, event: Event) -> None:
        """Handle the response to a heartbeat, or its error."""
        match event:
            case ResponseReceived(_, HeartbeatResponse(error_code=code)):
                self._heartbeats.answered()
                action = action_for(ApiKey.HEARTBEAT, code)
                if action in (CoordinatorAction.PROCEED, CoordinatorAction.REJOIN):
                    self._heartbeats.confirmed()
                if action is not CoordinatorAction.PROCEED:
                    signal = HEARTBEAT_SIGNALS.get(action, Signal.HEARTBEAT_RETRIED)
                    self._signal_code(signal, ApiKey.HEARTBEAT, code)
            case _ if is_final(error := error_of(event)):
                self.fail(Signal.FATAL, error)
            case _:
                self._heartbeats.retry(self._pending.now)

    def commit_rejected(self, event: CommitRejected) -> None:
        """Handle a rejected commit, which may be the first sign of a rebalance or a lost member."""
        member = self._member
        signal = COMMIT_SIGNALS.get(action_for(ApiKey.OFFSET_COMMIT, event.code))
        is_current = (event.generation, event.member_id) == (member.generation, member.member_id)
        if signal and is_current:
            self._signal_code(signal, ApiKey.OFFSET_COMMIT, event.code)

    def _signal_code(self, signal: Signal, api: ApiKey, code: int) -> None:
        request = "Heartbeat" if api is ApiKey.HEARTBEAT else "OffsetCommit"
        words = f"{request} returned {error_name(code)}"
        action = action_for(api, code)
        match signal:
            case Signal.LOST:
                keeps_id = action is CoordinatorAction.LOSE_GENERATION
                self.lose(signal, words, keep_member_id=keeps_id)
            case Signal.FAILED | Signal.FATAL:
                self.fail(signal, error_for(api, code, self._member.settings.group_id))
            case Signal.HEARTBEAT_RETRIED:
                self._repeat_heartbeat(words, has_moved=action is CoordinatorAction.REDISCOVER)
            case Signal.REBALANCE:
                self.react(signal, "the group rebalances")
            case _:
                self.react(signal, words)

    def _repeat_heartbeat(self, words: str, *, has_moved: bool) -> None:
        if REACTIONS[self._member.state, Signal.HEARTBEAT_RETRIED] is Reaction.RETRY:
            if has_moved:
                self._pending.emit(DropCoordinator(words))
            self._heartbeats.retry(self._pending.now, at_once=has_moved)
