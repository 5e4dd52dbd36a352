"""The membership of ``group_protocol="auto"``, which becomes a consumer or a classic membership.

UndecidedMembership has one membership inside, and passes events and commands through. It begins as
a consumer membership whose heartbeats that join include a look-up (ChooseProtocol). So a failed
look-up is a failed heartbeat, which is retried or reported in one way. If the choice is the classic
protocol, a classic membership takes over with the subscription of that time.

A member keeps its protocol. It chooses again in these cases:

- It has left the group and subscribes.
- It is classic and joins after a loss of its membership. The group may have become a consumer group
  meanwhile.
- It is classic and its JoinGroup returned INCONSISTENT_GROUP_PROTOCOL. A consumer group may have no
  assignor in common with it.
- It is classic and subscribes to a pattern that brokers evaluate. Only the consumer protocol has
  such patterns, so the member leaves first.

Invariants:

1. A membership that is replaced owns nothing. A member gives up lost partitions before it joins,
   and a member that has left has none.
2. A membership ignores the events of a former one, because no two of them share a token. When a
   classic one takes over, commands are cancelled whose events a consumer membership awaits. Its
   last requests go on.
3. Only the result of the latest ChooseProtocol counts.
4. A classic member looks the protocol up again at most every 5 s. Meanwhile its command or error
   passes unchanged.
5. Counts, losses and the history include those of former memberships.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kohort.coordinator_client.auto._protocol_choice import CLASSIC, pattern_error
from kohort.coordinator_client.machine._commands import (
    Cancel,
    ChooseProtocol,
    Command,
    ConsumerHeartbeat,
    JoinGroup,
    ReportFailure,
)
from kohort.coordinator_client.machine._events import (
    Choice,
    CommandFailed,
    Event,
    LeaveRequested,
    ProtocolChosen,
    Subscribed,
)
from kohort.coordinator_client.machine._group_callbacks import GroupStatistics
from kohort.coordinator_client.machine._membership import Membership
from kohort.coordinator_client.machine._pending_commands import Role
from kohort.coordinator_client.machine._rebalance_history import RebalanceRecord
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import InconsistentGroupProtocolError
from kohort.logs import get_logger
from kohort.types import TopicPartition

logger = get_logger(__name__)

_JOIN_EPOCH = 0
"""The member epoch of a heartbeat that joins."""
_CHOICE_SECONDS = 5.0
"""Least time between two look-ups of a classic member."""
_LEAVE_SECONDS = 5.0
"""Time for a classic member to leave after a subscription by a pattern of the brokers."""


class FormerMemberships:
    """The counts and the history of memberships that another one has replaced."""

    def __init__(self) -> None:
        self.losses = 0
        self.history: tuple[RebalanceRecord, ...] = ()
        self._rebalances = self._heartbeats = 0
        self._seconds = self._longest = 0.0

    def add(self, membership: Membership) -> None:
        """Add a membership that ends now."""
        counts = membership.statistics()
        self.losses += membership.losses
        self.history = (*self.history, *membership.history)
        self._rebalances += counts.rebalances
        self._heartbeats += counts.heartbeats
        self._seconds += counts.rebalance_seconds
        self._longest = max(self._longest, counts.rebalance_longest)

    def with_counts(self, current: GroupStatistics) -> GroupStatistics:
        """Return the statistics with the counts of the former memberships added."""
        return current._replace(
            rebalances=self._rebalances + current.rebalances,
            rebalance_seconds=self._seconds + current.rebalance_seconds,
            rebalance_longest=max(self._longest, current.rebalance_longest),
            heartbeats=self._heartbeats + current.heartbeats,
        )


class UndecidedMembership:
    """A membership that chooses the group protocol at its joins."""

    def __init__(
        self,
        group_id: str,
        make_consumer: Callable[[], Membership],
        make_classic: Callable[[], Membership],
    ) -> None:
        self._group_id = group_id
        self._make_consumer = make_consumer
        self._make_classic = make_classic
        self._inner: Membership = make_consumer()
        self._choosing: int | None = None
        """Token of the latest command that chooses the protocol."""
        self._former = FormerMemberships()
        self._subscribed: Subscribed | None = None
        self._next: Subscribed | None = None
        """A subscription that waits until the member has left."""
        self._next_choice = -math.inf
        """Time from which a classic member may look the protocol up again."""
        self.choice: Choice | None = None
        """The protocol and the reason for it, or None before the first join."""

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle an event and return the commands to run. ``now`` must not decrease."""
        match event:
            case Subscribed():
                commands = self._subscribe(event, now)
            case ProtocolChosen(token, choice, answer):
                if token != self._choosing:
                    return []
                commands = self._chosen(token, choice, answer, now)
            case _:
                if isinstance(event, LeaveRequested):
                    self._next = None
                commands = self._forward(event, now)
        if now >= self._next_choice and (
            reasons := list(filter(None, map(self._reason_to_choose_again, commands)))
        ):
            commands = [each for each in commands if not self._reason_to_choose_again(each)]
            commands += self._look_up_again(reasons[0], now)
        if self._next is not None and self._inner.leave is None:
            following, self._next = self._next, None
            self._choose_again()
            commands += self._subscribe(following, now)
        return commands

    def _subscribe(self, event: Subscribed, now: float) -> list[Command]:
        """Pass on a subscription, unless the member must leave first."""
        if self.choice is not None and self.state is MemberState.UNSUBSCRIBED:
            self._choose_again()
        self._subscribed = event
        if self._inner.leave is not None:
            self._next = event
            return []
        if event.regex and not self._inner.uses_epochs:
            self._next = event
            reason = "subscribed to a pattern, which needs the consumer protocol"
            return self._forward(
                LeaveRequested(reason, now + _LEAVE_SECONDS, True, "subscribed"), now
            )
        return self._forward(event, now)

    def _chosen(
        self, token: int, choice: Choice | None, answer: Event | None, now: float
    ) -> list[Command]:
        """Handle the result of a join."""
        if choice is not None and choice.protocol == CLASSIC:
            if not self._has_pattern:
                return self._become_classic(choice, now)
            answer = CommandFailed(token, pattern_error(self._group_id, choice.reason))
        elif choice is not None:
            self._decide(choice)
        return [] if answer is None else self._forward(answer, now)

    def _forward(self, event: Event, now: float) -> list[Command]:
        """Let the membership handle an event. It ignores those of commands of a former one."""
        return [self._with_choice(each) for each in self._inner.handle(event, now)]

    def _with_choice(self, command: Command) -> Command:
        """Let a join choose the protocol. A member that joins owns nothing."""
        if isinstance(command, ConsumerHeartbeat) and command.epoch == _JOIN_EPOCH:
            self._choosing = command.token
            return ChooseProtocol(command.token, command)
        return command

    @property
    def _has_pattern(self) -> bool:
        return self._subscribed is not None and bool(self._subscribed.regex)

    def _decide(self, choice: Choice) -> None:
        if self.choice == choice:
            return
        self.choice = choice
        logger.info("[%s] group protocol %s: %s", self._group_id, choice.protocol, choice.reason)

    def _become_classic(self, choice: Choice, now: float) -> list[Command]:
        """Continue as a classic membership, with the subscription of now."""
        self._decide(choice)
        cancelled: list[Command] = [
            Cancel(token) for token in sorted(self._inner.outstanding.values())
        ]
        self._replace(self._make_classic())
        assert self._subscribed is not None
        return [*cancelled, *self._forward(self._subscribed, now)]

    def _reason_to_choose_again(self, command: Command) -> str:
        """Return why a command of a classic member leads to another look-up, or ""."""
        if self.uses_epochs:
            return ""
        match command:
            case ReportFailure(InconsistentGroupProtocolError()):
                return "the group refused the assignors"
            case JoinGroup(member_id="") if self._inner.losses:
                return "the membership was lost"
            case _:
                return ""

    def _look_up_again(self, reason: str, now: float) -> list[Command]:
        """Choose again in place of a command. Without another choice, the command occurs again.

        The classic member owns nothing then, because it has given up what it had.
        """
        logger.info("[%s] looking the group protocol up again: %s", self._group_id, reason)
        self._next_choice = now + _CHOICE_SECONDS
        self._choose_again()
        assert self._subscribed is not None
        return self._forward(self._subscribed, now)

    def _choose_again(self) -> None:
        self.choice = None
        self._replace(self._make_consumer())

    def _replace(self, membership: Membership) -> None:
        self._former.add(self._inner)
        self._inner, self._choosing = membership, None

    # --- the membership -------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return the time of the next Tick, or None to wait for another event."""
        return self._inner.next_deadline()

    def statistics(self) -> GroupStatistics:
        """Return counts, times and current reasons, also of earlier memberships."""
        return self._former.with_counts(self._inner.statistics())

    @property
    def state(self) -> MemberState:
        return self._inner.state

    @property
    def member_id(self) -> str:
        return self._inner.member_id

    @property
    def generation(self) -> int:
        return self._inner.generation

    @property
    def uses_epochs(self) -> bool:
        return self._inner.uses_epochs

    @property
    def protocol(self) -> str | None:
        return self._inner.protocol

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._inner.owned

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        return self._inner.withheld

    @property
    def losses(self) -> int:
        return self._former.losses + self._inner.losses

    @property
    def releases(self) -> Mapping[TopicPartition, int]:
        """The counts of the current membership. The end of a former one is among the losses."""
        return self._inner.releases

    @property
    def leave(self) -> LeaveRequested | None:
        return self._inner.leave

    @property
    def needs_poll(self) -> bool:
        return self._inner.needs_poll

    @property
    def is_fenced(self) -> bool:
        return self._inner.is_fenced

    @property
    def is_finishing_rebalance(self) -> bool:
        return self._inner.is_finishing_rebalance

    @property
    def confirmed_until(self) -> float:
        return self._inner.confirmed_until

    @property
    def awaits_partitions_until(self) -> float:
        return self._inner.awaits_partitions_until

    @property
    def outstanding(self) -> Mapping[Role, int]:
        """The tokens of the current membership's commands in progress, by role."""
        return self._inner.outstanding

    @property
    def history(self) -> Sequence[RebalanceRecord]:
        return (*self._former.history, *self._inner.history)
