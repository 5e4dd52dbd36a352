"""The rebalance of the classic protocol, from top to bottom in one function."""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator_client.assignors import Assignment
from kohort.coordinator_client.classic._exchange import GroupExchange
from kohort.coordinator_client.classic._failures import MembershipFailures
from kohort.coordinator_client.classic._leadership import Leadership
from kohort.coordinator_client.classic._member import MemberData
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Command,
)
from kohort.coordinator_client.machine._events import Event
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._pending_commands import (
    PendingCommands,
    RebalanceStart,
    RebalanceSteps,
    Restarted,
    Role,
    T,
)
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.coordinator_client.machine._state import MemberState
from kohort.logs import get_logger
from kohort.transport import counted, escaped
from kohort.types import RebalanceCause, TopicPartition

logger = get_logger(__name__)


class Rebalance:
    """The rebalances of one member, one at a time.

    The steps are a generator. It yields to wait for an event, which :meth:`resume` passes on.
    """

    def __init__(
        self,
        member: MemberData,
        pending: PendingCommands,
        exchange: GroupExchange,
        leadership: Leadership,
        failures: MembershipFailures,
        history: RebalanceHistory,
    ) -> None:
        self._member = member
        self._pending = pending
        self._exchange = exchange
        self._leadership = leadership
        self._failures = failures
        self._history = history
        self.deadline: float | None = None
        """The time that the waiting step has yielded, such as that of a retry of JoinGroup."""
        self.next_reason: str | None = None
        """Reason for another rebalance directly after this one, or None."""
        self.next_cause: RebalanceCause = "group_changed"
        self._steps: RebalanceSteps[None] | None = None
        self._is_calling_back = False

    # --- the rebalance, from top to bottom ------------------------------------------------------

    def _run(self, start: RebalanceStart) -> RebalanceSteps[None]:
        """Run rebalances until the member is STABLE or FAILED.

        An error code raises Restarted in a step. A signal raises it where a step waits, see
        ``REACTIONS``.
        """
        exchange = self._exchange
        while True:
            self._begin(start)
            try:
                if start.needs_poll or self._partitions_to_give_up():
                    yield from self._wait_for_poll(
                        MemberState.JOIN_PENDING,
                        start.reason,
                        refreshes_topics=start.refreshes_topics,
                    )
                    yield from self._give_up_partitions()  # REVOKING
                    start = RebalanceStart(self._history.reason)
                if self._failures.report():  # FAILED
                    self._history.forget_begin()
                    return
                response, members = yield from exchange.join(start)  # JOINING
                assignments = yield from exchange.assign(response, members)  # ASSIGNING
                assignment = yield from exchange.sync(assignments)  # SYNCING
                self._check_gap(assignment)
                self._history.asked_at = self._pending.now
                assigned = f"assigned {describe(assignment.partitions)}"
                yield from self._wait_for_poll(MemberState.RECONCILING, assigned)
                revoked = yield from self._revoke(assignment)
                yield from self._add(assignment)
                self._complete()
                if revoked:
                    start = self._second_round(revoked)
                elif again := self._become_stable():  # STABLE
                    start = again
                else:
                    return
            except Restarted as restarted:
                self._pending.forget(Role.JOIN, Role.ASSIGN, Role.SYNC)
                start = restarted.start

    def _begin(self, start: RebalanceStart) -> None:
        self._history.reason, self.next_reason = start.reason, None
        self._history.note_due(self._pending.now)

    def _wait_for_poll(
        self, state: MemberState, why: str, *, refreshes_topics: bool = False
    ) -> RebalanceSteps[None]:
        """Wait until the caller is inside poll(), where callbacks run."""
        self._member.cell.move(state, why)
        if not self._pending.waits_for(Role.POLL):
            self._pending.emit(AwaitPoll(self._pending.start(Role.POLL), refreshes_topics))
        yield None
        self._history.note_begin(self._member.owned, self._pending.now)

    # --- before JoinGroup -----------------------------------------------------------------------

    def _partitions_to_give_up(self) -> frozenset[TopicPartition]:
        """Return the partitions to revoke or to lose before JoinGroup. None need no callback."""
        member = self._member
        if not member.in_generation or not member.settings.cooperative:
            return member.owned
        return frozenset(tp for tp in member.owned if tp.topic not in member.wanted)

    def _give_up_partitions(self) -> RebalanceSteps[None]:
        """Call the listener until nothing is left to give up.

        A membership that is lost during ``on_revoked`` needs ``on_lost`` for the rest.
        """
        while partitions := self._partitions_to_give_up():
            is_lost = not self._member.in_generation
            self._member.cell.move(MemberState.REVOKING, "lost" if is_lost else "revoked")
            if is_lost:
                self._history.note_lost(partitions)
            call = CallLost if is_lost else CallRevoked
            command = call(self._pending.start(Role.CALLBACK), partitions)
            yield from self._call_back(command, self._member.owned - partitions)

    def _call_back(
        self, command: Command, owned_after: frozenset[TopicPartition]
    ) -> RebalanceSteps[None]:
        """Run a callback of the listener. No signal interrupts it."""
        self._member.owned_after = owned_after
        self._pending.emit(command)
        self._is_calling_back = True
        yield None
        self._is_calling_back = False

    # --- after SyncGroup ------------------------------------------------------------------------

    def _check_gap(self, assignment: Assignment) -> None:
        """Stop the delivery of partitions that others may have owned meanwhile.

        A consumer group keeps the epoch of a classic member that has partitions to revoke. A later
        epoch means that the group has taken them away before. That happens as follows:

        1. A heartbeat asks this member to rejoin.
        2. The group becomes classic and takes its next assignment for the current one.
        3. The group becomes a consumer group again.
        4. This member joins. From now on the coordinator would accept its commits.
        """
        member = self._member
        gone = member.owned.difference(assignment.partitions, member.lost)
        if gone and member.owned_generation != member.generation:
            member.lost |= gone
            self._failures.lose_partitions(gone)

    def _revoke(self, assignment: Assignment) -> RebalanceSteps[frozenset[TopicPartition]]:
        """Give up the partitions that are not in the assignment, and return them."""
        member, new_token = self._member, self._pending.start
        if lost := member.lost:
            call_lost = CallLost(new_token(Role.CALLBACK), lost)
            yield from self._call_back(call_lost, member.owned - lost)
            self._rejoin_if_lost()
        if revoked := member.owned.difference(assignment.partitions):
            call_revoked = CallRevoked(new_token(Role.CALLBACK), revoked)
            yield from self._call_back(call_revoked, member.owned - revoked)
            self._rejoin_if_lost()
        return lost | revoked

    def _add(self, assignment: Assignment) -> RebalanceSteps[None]:
        """Set the owned partitions and call the listener, even if nothing is new."""
        member, target = self._member, frozenset(assignment.partitions)
        added, member.owned = target - member.owned, target
        member.owned_generation = member.generation
        member.ended.partitions.update(member.assigned - target)
        member.assigned = target
        command = CallAssigned(
            token=self._pending.start(Role.CALLBACK),
            added=added,
            assignment=target,
            protocol=member.protocol or "",
            generation=member.generation,
            member_id=member.member_id,
            user_data=assignment.user_data,
        )
        yield from self._call_back(command, target)
        self._rejoin_if_lost()

    def _rejoin_if_lost(self) -> None:
        """Rejoin after a callback during which the membership was lost."""
        if not self._member.in_generation:
            raise Restarted(RebalanceStart(self._history.reason))

    def _complete(self) -> None:
        """Log the completed rebalance, add it to the history and forget earlier errors."""
        record = self._history.complete(self._member, self._pending.now)
        self.forget_attempts()
        logger.info(
            "[%s] rebalanced in %.3f s%s: generation %d, %s%s, gained %s, lost %s, now %s. "
            "Reason: %s",
            self._member.settings.group_id,
            record.seconds,
            f" ({record.waited:.3f} s after it was due)" if record.waited >= 0.001 else "",
            record.generation,
            record.protocol,
            ", leader" if self._leadership.is_leader else "",
            describe(record.gained),
            describe(record.lost),
            counted(len(record.assignment), "partition"),
            escaped(record.reason),
            extra=self._member.log_fields,
        )

    def _second_round(self, revoked: frozenset[TopicPartition]) -> RebalanceStart:
        """Return the start of the rebalance that assigns the revoked partitions to others."""
        self._history.note_second_round(self._member.owned, self._pending.now)
        return RebalanceStart(f"revoked {describe(revoked)}", needs_poll=False)

    def _become_stable(self) -> RebalanceStart | None:
        """Change to STABLE. Return the start of another rebalance that is needed, or None."""
        member, reason = self._member, self.next_reason
        member.cell.move(MemberState.STABLE, f"generation {member.generation}")
        cause = self.next_cause
        if member.topics != member.joined_topics:
            reason, cause = member.subscription_change(), "subscribed"
        if reason is None:
            return None
        member.cause = cause
        return RebalanceStart(reason)

    # --- events and signals ---------------------------------------------------------------------

    def start(self, reason: str, *, refreshes_topics: bool = True) -> None:
        """Start a rebalance with the wait for poll(). Replace one in progress."""
        self._interrupt(RebalanceStart(reason, refreshes_topics=refreshes_topics))

    def restart(self, reason: str) -> None:
        """Restart the rebalance in progress with JoinGroup."""
        self._interrupt(RebalanceStart(reason, needs_poll=False))

    def _interrupt(self, start: RebalanceStart) -> None:
        steps = self._steps
        if steps is None:
            self._steps = steps = self._run(start)
            self._advance(steps.send, None)
        elif not self._is_calling_back:
            self._advance(steps.throw, Restarted(start))

    def resume(self, event: Event) -> None:
        """Pass an event to the step that waits for it."""
        if self._steps is not None:
            self._advance(self._steps.send, event)

    def tick(self) -> None:
        """Resume a step that waits for a time, if it has come."""
        if self._steps and self.deadline is not None and self._pending.now >= self.deadline:
            self._advance(self._steps.send, None)

    def _advance(self, proceed: Callable[[T], float | None], value: T) -> None:
        try:
            self.deadline = proceed(value)
        except StopIteration:
            self._steps = self.deadline = None

    def stop(self) -> None:
        """End the rebalance in progress. JoinGroup may stay in flight."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self.deadline = None
        self._is_calling_back = False
        self._pending.forget(Role.POLL, Role.ASSIGN, Role.SYNC)

    def forget_attempts(self) -> None:
        """Forget the start, errors and retries, after a complete rebalance or the leaving."""
        self._history.forget_begin()
        self._exchange.forget_attempts()
        self._failures.forget()
