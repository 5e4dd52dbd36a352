"""The membership in a consumer group (KIP-848), a state machine without I/O, clock and threads.

``machine/_membership`` has the rules of every membership. Here the broker assigns the partitions,
and one request does everything. ConsumerGroupHeartbeat joins, subscribes, keeps the session,
acknowledges and leaves. Its response has the member epoch, and the target assignment if it changed.
Reconciliation has these steps from top to bottom:

1. JOINING: heartbeats with epoch 0 carry the subscription, until one is accepted.
2. RECONCILING: the member revokes what the target lacks, and then adds what is new. Its callbacks
   wait for poll().
3. ACKNOWLEDGING: heartbeats carry the owned partitions until one has a response. Then the
   coordinator gives revoked partitions to their new owners.
4. STABLE: the member waits for another target.

ConsumerHeartbeats chooses the fields of a request, and HeartbeatSchedule its time. TargetAssignment
has the target. ConsumerSignals turns responses into signals, and CONSUMER_REACTIONS says what a
signal does in each state. ConsumerLeaving has the last callback and the last heartbeat.

Invariants:

1. A heartbeat has a field only if it changed since the coordinator got it. After an error, and for
   another coordinator, the next one has all fields, because either side may have missed some.
2. At most one heartbeat is in flight. They are sent at the broker's interval, but at least three
   times in a session timeout.
3. A target replaces the earlier one. Each step uses the latest, also if it came during a callback.
4. Partitions are compared by topic id. That of a recreated topic is revoked under the old id, and
   added under the new one.
5. Revocations come before additions, and do not wait for the names of topics.
6. Delivery of a revoked partition stops when the target arrives. The next owner would otherwise
   read again what is delivered after the callback's commit.
7. FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND end a membership. ``on_lost`` runs
   before the member joins again.
8. A rejected commit or read of offsets makes a heartbeat due at once. It brings the new epoch, or
   shows that the member was removed.
9. UNRELEASED_INSTANCE_ID means that the instance id is in use. The holder may be this member, after
   a heartbeat without a response (``may_hold_instance``). Then ConsumerSignals releases the id. For
   another holder RefusalSeries waits a session. After that the member is fenced.
10. A leaving member stays subscribed and sends heartbeats until its last callback has ended. Its
    last heartbeat has epoch -1, or -2 for a static member that returns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kohort.coordinator_client.consumer._failures import ConsumerFailures
from kohort.coordinator_client.consumer._heartbeats import ConsumerHeartbeats
from kohort.coordinator_client.consumer._leaving import ConsumerLeaving
from kohort.coordinator_client.consumer._member import ConsumerMemberData, ConsumerMemberSettings
from kohort.coordinator_client.consumer._reactions import (
    CONSUMER_REACTIONS,
    ConsumerReaction,
    ConsumerSignal,
)
from kohort.coordinator_client.consumer._reconciliation import Reconciliation
from kohort.coordinator_client.consumer._signals import ConsumerSignals
from kohort.coordinator_client.consumer._target import TargetAssignment
from kohort.coordinator_client.machine._commands import Command
from kohort.coordinator_client.machine._events import (
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
    TopicsResolved,
)
from kohort.coordinator_client.machine._group_callbacks import GroupStatistics
from kohort.coordinator_client.machine._membership import CommonMembership
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._poll_interval import PollInterval
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.logs import get_logger
from kohort.types import TopicPartition

logger = get_logger(__name__)


class ConsumerMembership(CommonMembership):
    """A member of a consumer group, which has one request: ConsumerGroupHeartbeat.

    The broker assigns the partitions. A member learns of its assignment by the responses to its own
    heartbeats. Every command with a token must be completed by an event with that token.
    ``id_source`` makes the member id predictable, for tests.
    """

    def __init__(
        self,
        settings: ConsumerMemberSettings,
        rng: random.Random,
        tokens: Iterator[int],
        id_source: random.Random | None = None,
    ) -> None:
        pending, history = PendingCommands(tokens), RebalanceHistory()
        member = ConsumerMemberData(settings, rng, id_source)
        self.heartbeats = heartbeats = ConsumerHeartbeats(member, pending)
        failures = ConsumerFailures(member, pending, heartbeats)
        super().__init__(member, pending, failures, history)
        self.member: ConsumerMemberData = member
        self.failures: ConsumerFailures = failures
        self._target = target = TargetAssignment(member)
        reconciliation = Reconciliation(member, pending, heartbeats, target, failures, history)
        self._reconciliation = reconciliation
        self._leaving = ConsumerLeaving(member, pending, heartbeats, reconciliation, failures)
        self._signals = ConsumerSignals(
            member, pending, heartbeats, target, reconciliation, failures, history
        )
        self._poll_interval = PollInterval(settings.group_id, settings.max_poll_interval)
        self._has_warned = False

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle an event and return the commands to run. ``now`` must not decrease."""
        self._pending.now = now
        match event:
            case Subscribed(topics, regex):
                self._subscribed(topics, regex)
            case LeaveRequested():
                self._leave_requested(event)
            case RejoinRequested():
                self._warn_of_rejoin()
            case CoordinatorFound():
                self._signals.coordinator_found()
            case EpochRejected():
                self._signals.epoch_rejected(event)
            case CommitRejected() | TopicsChanged():
                pass  # a rejected commit is EpochRejected, and the broker watches the topics
            case TopicIdsSeen(ids):
                self._signals.topic_ids_seen(ids)
            case NoneLeft(member_id):
                if member_id == self.member_id:
                    self._reconciliation.expect_nothing()
            case Tick(last_poll):
                self._tick(last_poll, now)
            case _:
                role = self._pending.finish(event.token)
                if role is not None:
                    self._completed(role, event)
        self._leaving.steps.advance()  # first, because it ends the reconciliation
        self._reconciliation.advance()
        self.heartbeats.send_if_due()
        return self._pending.take()

    def next_deadline(self) -> float | None:
        """Return the time of the next :class:`Tick`, or None to wait for another event."""
        times = [
            self.heartbeats.schedule.deadline(),
            self._reconciliation.deadline,
            self._leaving.steps.deadline,
            self._poll_interval.deadline() if self._must_poll() else None,
            self.failures.deadline(),
        ]
        return min((time for time in times if time is not None), default=None)

    def statistics(self) -> GroupStatistics:
        """Return counts, times and current reasons."""
        schedule = self.heartbeats.schedule
        return self._statistics(schedule.count, schedule.last, is_leader=False)

    # --- commands that are complete -------------------------------------------------------------

    def _completed(self, role: Role, event: Event) -> None:
        match role, event:
            case Role.POLL, _:
                last_poll = event.last_poll if isinstance(event, PollEntered) else None
                self._poll_interval.note_poll(self._pending.now if last_poll is None else last_poll)
            case Role.CALLBACK, _:
                self.member.give_up()
            case Role.HEARTBEAT, _:
                self._signals.heartbeat_completed(event)
            case Role.RESOLVE, TopicsResolved(_, names):
                self._target.note_names(names)
            case Role.LEAVE, _:
                self._leaving.last.note_response(event)
            case _:
                pass

    # --- requests of the caller -----------------------------------------------------------------

    def _subscribed(self, topics: frozenset[str], regex: str) -> None:
        member = self.member
        is_same = (topics, regex) == (member.topics, member.regex)
        signal = ConsumerSignal.RESUBSCRIBED if is_same else ConsumerSignal.SUBSCRIBED
        member.topics, member.regex = topics, regex
        is_member = member.in_group
        if CONSUMER_REACTIONS[self.state, signal] is ConsumerReaction.JOIN:
            self.failures.is_fenced = False
        reason = member.subscription_change() if is_member else "subscribed"
        self._signals.react(signal, reason)

    def _leave_requested(self, request: LeaveRequested) -> None:
        self.member.topics = None
        reaction = CONSUMER_REACTIONS[self.state, ConsumerSignal.LEAVE]
        if reaction is not ConsumerReaction.IGNORE:
            self._signals.forget_refusals()
            self._leaving.steps.begin(request)

    def _warn_of_rejoin(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "[%s] enforce_rebalance() has no effect, because the broker assigns the "
                "partitions. Set group_protocol to 'classic' to use it",
                self.settings.group_id,
            )

    # --- time -----------------------------------------------------------------------------------

    def _tick(self, last_poll: float, now: float) -> None:
        self._poll_interval.note_poll(last_poll)
        if self._must_poll() and (reason := self._poll_interval.check(now)):
            self.failures.send_leave()
            self._signals.lose(ConsumerSignal.POLL_OVERDUE, reason, needs_poll=True)
        if self.failures.has_polled_since(self._poll_interval.last_poll):
            self._signals.react(ConsumerSignal.POLLED, "polled again after an error")

    def _must_poll(self) -> bool:
        """True if the caller must poll, because the coordinator has this member."""
        reaction = CONSUMER_REACTIONS[self.state, ConsumerSignal.POLL_OVERDUE]
        return reaction is not ConsumerReaction.IGNORE and self.member.in_group

    # --- the member -------------------------------------------------------------------------

    @property
    def settings(self) -> ConsumerMemberSettings:
        return self.member.settings

    @property
    def uses_epochs(self) -> bool:
        """True, because commits and reads of offsets name the member epoch."""
        return True

    @property
    def protocol(self) -> str | None:
        """Name of the broker's assignor that the member asks for, if any."""
        return self.settings.assignor

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """The owned partitions whose delivery must stop, because others own or wait for them."""
        return self._reconciliation.withheld

    @property
    def leave(self) -> LeaveRequested | None:
        """The caller's request, until the member has left."""
        return self._leaving.steps.request

    @property
    def is_finishing_rebalance(self) -> bool:
        """False, because the coordinator accepts commits until the member has left."""
        return False

    @property
    def confirmed_until(self) -> float:
        """The time until which the session prevents that others own this member's partitions."""
        return self.heartbeats.schedule.confirmed_until

    @property
    def awaits_partitions_until(self) -> float:
        return self._reconciliation.awaits_partitions_until
