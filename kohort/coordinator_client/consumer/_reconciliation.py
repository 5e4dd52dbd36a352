"""The membership in a consumer group, from top to bottom in one function."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

from kohort.coordinator_client.consumer._failures import ConsumerFailures
from kohort.coordinator_client.consumer._heartbeats import (
    FIRST_INTERVALS,
    NEXT_INTERVALS,
    ConsumerHeartbeats,
)
from kohort.coordinator_client.consumer._member import ConsumerMemberData
from kohort.coordinator_client.consumer._target import TargetAssignment
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    ResolveTopics,
    ResumeDelivery,
    StopDelivery,
)
from kohort.coordinator_client.machine._member import NO_PARTITIONS
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._pending_commands import (
    PendingCommands,
    RebalanceStart,
    Restarted,
    Role,
)
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory
from kohort.coordinator_client.machine._state import MemberState
from kohort.logs import get_logger
from kohort.transport import counted, escaped
from kohort.types import TopicPartition

logger = get_logger(__name__)

T = TypeVar("T")
FIRST_SECONDS = 2.0
"""Least time for first partitions to arrive. Coordinators assign at intervals of 1 s by default."""
MembershipSteps = Generator[float | None, None, None]
"""Steps of a membership. Each yields until the next event, or until a time if there is one."""


class Reconciliation:
    """The steps of one member between its join and its end.

    The steps are a generator. It yields to wait for an event, and :meth:`advance` continues it.
    """

    def __init__(
        self,
        member: ConsumerMemberData,
        pending: PendingCommands,
        heartbeats: ConsumerHeartbeats,
        target: TargetAssignment,
        failures: ConsumerFailures,
        history: RebalanceHistory,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._target = target
        self._failures = failures
        self._history = history
        self.deadline: float | None = None
        """The time at which the current step ends without an event."""
        self._steps: MembershipSteps | None = None
        self._is_calling_back = False
        self._withheld = NO_PARTITIONS
        self._version = 0
        self._lookups = 0
        self._joins = 0
        self._first_until = -math.inf

    @property
    def awaits_partitions_until(self) -> float:
        """The time until which a member that got nothing by its join may get its first partitions.

        Their owners release them first, or the coordinator assigns at intervals. The time is past
        for a member that has partitions.
        """
        is_waiting = self._member.in_group and self._target.is_empty
        return self._first_until if is_waiting else -math.inf

    def expect_nothing(self) -> None:
        """End the wait for first partitions, because other members get all of them."""
        self._first_until = -math.inf

    # --- the membership, from top to bottom -----------------------------------------------------

    def _run(self, start: RebalanceStart) -> MembershipSteps:
        """Join and reconcile until the membership ends with an error to report.

        A signal raises Restarted where a step waits, see ``CONSUMER_REACTIONS``.
        """
        member = self._member
        while True:
            self._begin(start)
            try:
                if start.needs_poll or member.owned:
                    member.cell.move(MemberState.JOIN_PENDING, start.reason)
                    yield from self._wait_for_poll()
                    yield from self._give_up_lost()  # REVOKING
                if self._failures.report():  # FAILED
                    self._history.forget_begin()
                    self._joins = 0  # the wait for a later poll() is a pause
                    return
                yield from self._join(start)  # JOINING
                while True:
                    has_revoked = yield from self._reconcile()  # RECONCILING
                    yield from self._acknowledge(has_revoked)  # ACKNOWLEDGING
                    yield from self._wait_for_change()  # STABLE
            except Restarted as restarted:
                self._pending.forget(Role.POLL, Role.RESOLVE)
                start = restarted.start

    def _begin(self, start: RebalanceStart) -> None:
        self._history.reason = start.reason
        self._history.note_due(self._pending.now)

    def _wait_for_poll(self, must_call: bool = True) -> MembershipSteps:
        """Wait until the caller is inside poll(), where callbacks run.

        Without ``must_call``, the wait ends when an assignment takes back the changes.
        """
        if not self._pending.waits_for(Role.POLL):
            self._pending.emit(AwaitPoll(self._pending.start(Role.POLL)))
        while self._pending.waits_for(Role.POLL) and (must_call or self._target.is_changed()):
            yield None
        self._pending.forget(Role.POLL)
        self._history.note_begin(self._member.owned, self._pending.now)

    # --- before the join ------------------------------------------------------------------------

    def _give_up_lost(self) -> MembershipSteps:
        """Call the listener for the partitions of a lost membership."""
        while owned := self._member.owned:
            self._member.cell.move(MemberState.REVOKING, "lost")
            self._history.note_lost(owned)
            yield from self._call_back(CallLost(self._pending.start(Role.CALLBACK), owned))
        self._withheld = NO_PARTITIONS

    def _join(self, start: RebalanceStart) -> MembershipSteps:
        """Send heartbeats that join, until one is accepted."""
        self._member.cell.move(MemberState.JOINING, start.reason)
        if self._joins:  # the first join after a loss is immediate
            until = self._pending.now + self._member.backoff(self._joins - 1)
            while self._pending.now < until:
                yield until
        self._joins += 1
        self._target.replace(())  # the assignment of a lost membership
        self._heartbeats.start()
        while not self._member.in_group:
            yield None
        if self._target.is_empty:
            schedule, now = self._heartbeats.schedule, self._pending.now
            schedule.follow_up(now, FIRST_INTERVALS)
            self._first_until = max(schedule.follow_until, now + FIRST_SECONDS)

    # --- an assignment --------------------------------------------------------------------------

    def _reconcile(self) -> Generator[float | None, None, bool]:
        """Revoke partitions until none is left to revoke, then add the new ones.

        The assignment may change at each wait, also during a callback. Each step uses the latest
        one. Return True if partitions were revoked.
        """
        target = self._target
        must_call = self._member.state is MemberState.JOINING
        has_revoked = False
        self._history.note_due(self._pending.now)
        if self._member.state is not MemberState.RECONCILING:
            self._member.cell.move(MemberState.RECONCILING, f"epoch {self._member.generation}")
        while True:
            self._version = target.version
            has_waited = yield from self._resolve()
            if not (must_call or target.is_changed()):
                self._history.forget_begin()
                return has_revoked
            if has_waited or not has_revoked:  # after a callback, the caller is inside poll()
                yield from self._wait_for_poll(must_call)
            if revoked := target.revoked():
                must_call = has_revoked = True
                yield from self._call_back(CallRevoked(self._new_token(), revoked))
                self._rejoin_if_lost()
                self._withheld -= revoked
                self.withhold()
                if self._is_resolving or target.unresolved():
                    self._heartbeats.acknowledge()  # others wait for the revoked partitions
            elif not self._is_resolving and (must_call or target.added()):
                yield from self._add(target.added())
                self._rejoin_if_lost()
                self.withhold()
                self._complete()
                return has_revoked

    def _resolve(self) -> Generator[float | None, None, bool]:
        """Look up the names of the topics. Partitions of unknown topics are left out for now.

        A revocation needs no names, so it does not wait for the look-up. Return True after a wait.
        """
        ids = self._target.unresolved()
        if ids and not self._is_resolving:
            self._pending.emit(ResolveTopics(self._pending.start(Role.RESOLVE), ids))
        has_waited = False
        while self._is_resolving and not self._target.revoked():
            has_waited = True
            yield None
        if not self._is_resolving:
            self._lookups = self._lookups + 1 if self._target.unresolved() else 0
        return has_waited

    @property
    def _is_resolving(self) -> bool:
        return self._pending.waits_for(Role.RESOLVE)

    def withhold(self) -> bool:
        """Stop the delivery of what the assignment takes away, and resume what it gives back.

        Return True if the delivery of some partitions stops. Partitions of recreated topics count
        as taken away, because their next owner may read the new topic already.

        This happens when the assignment arrives. Records that are delivered after the commit of the
        callback would be read again by the next owner.
        """
        revoked = self._target.revoked() | self._target.recreated()
        if self._is_calling_back:
            revoked |= self._withheld
        if stopped := revoked - self._withheld:
            self._pending.emit(StopDelivery(stopped))
        if resumed := self._withheld - revoked:
            self._pending.emit(ResumeDelivery(resumed))
        self._withheld = revoked
        return bool(stopped)

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """The owned partitions whose delivery must stop, because others own or wait for them."""
        return self._withheld if self._member.in_group else self._member.owned

    def _add(self, added: Mapping[TopicPartition, bytes]) -> MembershipSteps:
        """Set the owned partitions and call the listener, even if nothing is new."""
        member = self._member
        member.owned |= added.keys()
        member.note_ids(added)
        command = CallAssigned(
            token=self._new_token(),
            added=frozenset(added),
            assignment=member.owned,
            protocol="",
            generation=member.generation,
            member_id=member.member_id,
            user_data=None,
        )
        yield from self._call_back(command)

    def _call_back(self, command: CallRevoked | CallLost | CallAssigned) -> MembershipSteps:
        """Run a callback of the listener. No signal interrupts it."""
        member = self._member
        gone = NO_PARTITIONS if isinstance(command, CallAssigned) else command.partitions
        member.owned_after = member.owned - gone
        self._pending.emit(command)
        self._is_calling_back = True
        while self._pending.waits_for(Role.CALLBACK):
            yield None
        self._is_calling_back = False

    def _rejoin_if_lost(self) -> None:
        """Join again after a callback during which the membership was lost."""
        if not self._member.in_group:
            raise Restarted(RebalanceStart(self._history.reason))

    def _complete(self) -> None:
        """Log the completed rebalance, add it to the history and forget earlier errors."""
        record = self._history.complete(self._member, self._pending.now)
        self.forget_attempts()
        logger.info(
            "[%s] rebalanced in %.3f s%s: epoch %d, gained %s, lost %s, now %s. Reason: %s",
            self._member.settings.group_id,
            record.seconds,
            f" ({record.waited:.3f} s after it was due)" if record.waited >= 0.001 else "",
            record.generation,
            describe(record.gained),
            describe(record.lost),
            counted(len(record.assignment), "partition"),
            escaped(record.reason),
            extra=self._member.log_fields,
        )

    # --- after an assignment --------------------------------------------------------------------

    def _acknowledge(self, has_revoked: bool) -> MembershipSteps:
        """Send the owned partitions until a response arrives, unless the coordinator has them.

        After a revocation, partitions of other members may follow.
        """
        heartbeats = self._heartbeats
        heartbeats.acknowledge()
        if heartbeats.must_acknowledge:
            self._member.cell.move(MemberState.ACKNOWLEDGING, describe(self._member.owned))
        while heartbeats.must_acknowledge:
            yield None
        if has_revoked:
            heartbeats.schedule.follow_up(self._pending.now, NEXT_INTERVALS)

    def _wait_for_change(self) -> MembershipSteps:
        """Wait for another assignment, or for the time to look up unresolved topics again.

        A changed subscription may allow partitions that were left out before.
        """
        member = self._member
        if not self._has_change():
            member.cell.move(MemberState.STABLE, f"epoch {member.generation}")
        retry_at = None
        if self._lookups:
            retry_at = self._pending.now + member.backoff(self._lookups - 1)
        while not self._has_change() and (retry_at is None or self._pending.now < retry_at):
            yield retry_at

    def _has_change(self) -> bool:
        return self._version != self._target.version or self._target.is_changed()

    def _new_token(self) -> int:
        return self._pending.start(Role.CALLBACK)

    # --- events and signals ---------------------------------------------------------------------

    def start(self, reason: str, *, needs_poll: bool = True) -> None:
        """Start with the join. Replace a membership that has ended."""
        start = RebalanceStart(reason, needs_poll=needs_poll)
        if self._steps is None:
            self._steps = self._run(start)
            self.advance()
        elif not self._is_calling_back:
            self._proceed(self._steps.throw, Restarted(start))

    def advance(self) -> None:
        """Take the steps that are possible now. Called after each event."""
        if self._steps is not None:
            self._proceed(self._steps.send, None)

    def _proceed(self, proceed: Callable[[T], float | None], value: T) -> None:
        try:
            self.deadline = proceed(value)
        except StopIteration:
            self._steps = self.deadline = None

    def stop(self) -> None:
        """End the steps, because the member leaves."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self.deadline = None
        self._is_calling_back = False
        self._withheld = NO_PARTITIONS
        self._pending.forget(Role.POLL, Role.RESOLVE)

    def forget_attempts(self) -> None:
        """Forget the start, errors and retries, after a complete rebalance or the leaving."""
        self._history.forget_begin()
        self._failures.forget()
        self._joins = 0
