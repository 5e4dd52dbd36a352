"""The membership of the classic protocol, a state machine without I/O, clock and threads.

``machine/_membership`` has the rules of every membership. This one routes its events to its parts:

- Rebalance has one rebalance from top to bottom, from the wait for poll() to STABLE.
- GroupExchange has its requests: JoinGroup, the leader's assignment and SyncGroup.
- SignalHandler turns error codes of heartbeats and commits into signals. REACTIONS says what a
  signal does in each state.
- Leaving has the last callback and LeaveGroup, beside a rebalance that may still run.
- Leadership has the topics that the member watches, and those of the assignment.
- Heartbeats has the times of heartbeats, and MembershipFailures the loss of the membership.

An eager member gives up all partitions before JoinGroup. A cooperative member gives up only those
of unsubscribed topics. After SyncGroup it revokes what the assignment takes away, and then joins a
second time, so that the new owners get it. They learn of this second rebalance by a heartbeat. So
the first heartbeats after a cooperative JoinGroup come at short intervals, which double.

Invariants:

1. JoinGroup and SyncGroup have a separate connection. The coordinator delays them, and handles the
   requests of a connection in order. Heartbeats, commits and LeaveGroup must not wait for them.
2. A rebalance waits before its callbacks until the caller is inside poll() or holds no records.
   Only then are the records of earlier polls processed.
3. Of the reactions, only "rejoin" and "restart" interrupt a rebalance. They throw Restarted where a
   step waits, but never during a callback. An error code raises it in the step of its request.
4. A member sends JoinGroup only after ``on_lost`` for the partitions of a lost membership.
5. The heartbeats of a generation continue during callbacks, so that these can commit. Those of a
   leaving member end after its last callback.
6. Commits count while JoinGroup is in flight. From its response to that of SyncGroup the
   coordinator rejects them.
7. A leaving cooperative member with partitions takes part in the rebalance for at most a second. It
   accepts only a generation that directly follows its own. After another one, other members may own
   the partitions.
8. A static member that closes or fails sends no LeaveGroup, unless the caller asked for one. Its
   partitions wait for its restart.
9. The leader watches the topics of all members. A restarted static member, and a classic member of
   a consumer group, may not know what the assignment covers. They look it up (see Leadership).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from kohort.coordinator_client.classic._exchange import GroupExchange
from kohort.coordinator_client.classic._failures import MembershipFailures
from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._leadership import Leadership
from kohort.coordinator_client.classic._leaving import Leaving
from kohort.coordinator_client.classic._member import MemberData, MemberSettings
from kohort.coordinator_client.classic._reactions import REACTIONS, Reaction, Signal
from kohort.coordinator_client.classic._rebalance import Rebalance
from kohort.coordinator_client.classic._signals import SignalHandler
from kohort.coordinator_client.machine._commands import Command, DropCoordinator, Heartbeat
from kohort.coordinator_client.machine._events import (
    AssignmentDescribed,
    CommitRejected,
    CoordinatorFound,
    EpochRejected,
    Event,
    LeaveRequested,
    NoneLeft,
    PollEntered,
    RejoinRequested,
    Subscribed,
    Tick,
    TopicIdsSeen,
    TopicsChanged,
)
from kohort.coordinator_client.machine._group_callbacks import GroupStatistics
from kohort.coordinator_client.machine._membership import CommonMembership
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._poll_interval import PollInterval
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.coordinator_client.machine._state import EXCHANGE, MemberState
from kohort.types import TopicPartition


class ClassicMembership(CommonMembership):
    """A member of a classic group, with JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

    It turns events into steps of the rebalance or into signals. It raises no error for invalid or
    missing responses. Every command with a token must be completed by an event with that token.
    """

    def __init__(self, settings: MemberSettings, rng: random.Random, tokens: Iterator[int]) -> None:
        pending, history = PendingCommands(tokens), RebalanceHistory()
        member = MemberData(settings, rng)
        self.heartbeats = heartbeats = Heartbeats(member)
        self._leadership = leadership = Leadership(pending)
        failures = MembershipFailures(member, pending, heartbeats, leadership)
        super().__init__(member, pending, failures, history)
        self.member: MemberData = member
        self.failures: MembershipFailures = failures
        exchange = GroupExchange(member, pending, heartbeats, leadership, failures)
        rebalance = Rebalance(member, pending, exchange, leadership, failures, history)
        self._rebalance = rebalance
        self._leaving = Leaving(member, pending, heartbeats, leadership, rebalance, failures)
        self._signals = SignalHandler(member, pending, heartbeats, rebalance, failures, history)
        self._poll_interval = PollInterval(settings.group_id, settings.max_poll_interval)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle an event and return the commands to run. ``now`` must not decrease."""
        self._pending.now = now
        match event:
            case Subscribed(topics):
                self._subscribed(topics)
            case LeaveRequested():
                self._leave_requested(event)
            case RejoinRequested(reason):
                self._signals.react(Signal.WANTED, reason, cause="requested")
            case TopicsChanged(topics, covered):
                if change := self._leadership.describe_change(topics, covered):
                    self._signals.react(
                        Signal.WANTED, change, refreshes_topics=False, cause="topics_changed"
                    )
            case CoordinatorFound():
                self.heartbeats.found(now)
            case CommitRejected():
                self._signals.commit_rejected(event)
            case EpochRejected() | TopicIdsSeen() | NoneLeft():
                pass  # a classic group has neither epochs nor topic ids, and assigns all at once
            case Tick(last_poll):
                self._tick(last_poll, now)
            case _:
                role = self._pending.finish(event.token)
                if role is not None:
                    self._completed(role, event)
        self._leaving.steps.advance()
        return self._pending.take()

    def next_deadline(self) -> float | None:
        """Return the time of the next :class:`Tick`, or None to wait for another event."""
        times = [
            self.heartbeats.deadline(),
            self._rebalance.deadline,
            self._leaving.steps.deadline,
            self._poll_interval.deadline() if self._must_poll() else None,
            self.failures.deadline(),
        ]
        return min((time for time in times if time is not None), default=None)

    def statistics(self) -> GroupStatistics:
        """Return counts, times and current reasons."""
        heartbeats = self.heartbeats
        return self._statistics(heartbeats.count, heartbeats.last, is_leader=self.is_leader)

    # --- commands that are complete -------------------------------------------------------------

    def _completed(self, role: Role, event: Event) -> None:
        match role:
            case Role.POLL:
                last_poll = event.last_poll if isinstance(event, PollEntered) else None
                self._poll_interval.note_poll(self._pending.now if last_poll is None else last_poll)
            case Role.CALLBACK:
                self.member.owned = self.member.owned_after
                self.member.lost &= self.member.owned
            case Role.HEARTBEAT:
                self._signals.heartbeat_completed(event)
                self._leadership.retry_look_up()
                return
            case Role.DESCRIBE:
                if isinstance(event, AssignmentDescribed):  # else the look-up is repeated later
                    self._leadership.note_described(event.topics)
                return
        if not self._leaving.take(role, event):
            self._rebalance.resume(event)

    # --- requests of the caller -----------------------------------------------------------------

    def _subscribed(self, topics: frozenset[str]) -> None:
        member = self.member
        is_same = topics == member.topics
        signal = Signal.RESUBSCRIBED if is_same else Signal.SUBSCRIBED
        member.topics = topics
        is_member = self.state is MemberState.STABLE
        if REACTIONS[self.state, signal] is Reaction.REJOIN:
            self.failures.is_fenced = False
        reason = member.subscription_change() if is_member else "subscribed"
        self._signals.react(signal, reason, refreshes_topics=is_same)

    def _leave_requested(self, request: LeaveRequested) -> None:
        self.member.topics = None
        if REACTIONS[self.state, Signal.LEAVE] is not Reaction.IGNORE:
            self._leaving.begin(request)

    # --- time -----------------------------------------------------------------------------------

    def _tick(self, last_poll: float, now: float) -> None:
        self._poll_interval.note_poll(last_poll)
        if self._must_poll() and (reason := self._poll_interval.check(now)):
            if self.member_id and not self.settings.static:
                self.failures.send_leave_group(reason)
            self._signals.lose(Signal.POLL_OVERDUE, reason)
        self._tick_heartbeats(now)
        self._rebalance.tick()
        if self.failures.has_polled_since(self._poll_interval.last_poll):
            self._signals.react(Signal.POLLED, "polled again after an error")

    def _tick_heartbeats(self, now: float) -> None:
        """Drop a silent coordinator, and send a heartbeat that is due."""
        silence = self.heartbeats.check_session(now)
        if silence is not None:
            self._pending.forget(Role.HEARTBEAT)
            words = f"no heartbeat had a response for {silence:.1f} s"
            self._pending.emit(DropCoordinator(words))
        if self.heartbeats.is_due(now):
            self._send_heartbeat(now)
        if silence is not None and self._rebalance.deadline is None:
            reason = "the coordinator did not respond for a session timeout"
            self._signals.react(Signal.SILENT, reason)

    def _send_heartbeat(self, now: float) -> None:
        self.heartbeats.note_sent(now)
        token = self._pending.start(Role.HEARTBEAT)
        # If this heartbeat is lost, there is time for another one within the session.
        timeout = self.settings.session_timeout * 2 / 3
        self._pending.emit(Heartbeat(token, self.member_id, self.generation, timeout))

    def _must_poll(self) -> bool:
        """True if the caller must poll, because the coordinator has this member in a generation."""
        if REACTIONS[self.state, Signal.POLL_OVERDUE] is Reaction.IGNORE:
            return False
        if self.state in EXCHANGE:
            return self._leaving.steps.request is None
        return self.member.in_generation

    # --- the member -------------------------------------------------------------------------

    @property
    def settings(self) -> MemberSettings:
        return self.member.settings

    @property
    def uses_epochs(self) -> bool:
        """True if :attr:`generation` is a member epoch, as in a consumer group (KIP-848)."""
        return False

    @property
    def protocol(self) -> str | None:
        return self.member.protocol

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that no other member owns."""
        return self.member.owned - self.member.lost

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """The owned partitions whose delivery must stop, because others may own them."""
        return self.member.lost if self.member.in_generation else self.member.owned

    @property
    def leave(self) -> LeaveRequested | None:
        """The caller's request, until the member has left."""
        return self._leaving.steps.request

    @property
    def is_leader(self) -> bool:
        return self._leadership.is_leader

    @property
    def is_finishing_rebalance(self) -> bool:
        """True if a leaving member completes a rebalance, so that its last commit is accepted."""
        return self._leaving.is_finishing_rebalance

    @property
    def confirmed_until(self) -> float:
        """The time until which the session prevents that others own this member's partitions."""
        return self.heartbeats.confirmed_until

    @property
    def awaits_partitions_until(self) -> float:
        """A time in the past, because a rebalance assigns all partitions at once."""
        return -math.inf

    @property
    def join_reason(self) -> str:
        return self.rebalances.reason
