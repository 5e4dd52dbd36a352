"""A membership under any group protocol, and what all memberships have in common.

A membership is a state machine without I/O, clock and threads. ``handle(event, now)`` returns the
commands to run, and ``next_deadline()`` the time of the next Tick. CoordinatorClient drives it. The
driver runs the commands, and returns their results as events.

ClassicMembership, ConsumerMembership and UndecidedMembership are the machines. They share these
parts, all in this package:

- ``_commands`` and ``_events`` have everything that passes between a machine and its driver.
- PendingCommands has the commands to return, and the token and role of each one in progress.
- StateCell has the state of a member. TRANSITIONS is the table of its transitions.
- CommonMemberData has the member id, the generation or epoch, and the owned partitions.
- FailureReports has the losses of a membership, and the errors that poll() raises.
- LeavingSteps drives the last callback and the last request, which each protocol writes.
- PollInterval and RebalanceHistory have times, and give no commands.
- ``_error_code_actions`` has the action for each API and error code.

A rebalance and the leaving are generators, whose steps read from top to bottom. A generator yields
while it waits for an event or a time. The driver awaits each callback of the consumer
(GroupCallbacks) in a separate task, so heartbeats continue while a listener runs.

Invariants:

1. The driver completes a command that has a token by exactly one event with that token. After
   Cancel it sends none.
2. At most one command of each role is in progress. An event with a stale token is dropped. Two
   memberships of one consumer never use the same token.
3. A machine handles one event at a time. An exception of it is a bug. Then the driver ends, and
   poll() raises an error.
4. Only ``move()`` of StateCell sets a state. It checks and logs each transition.
5. A reaction never interrupts a callback. After the callback the steps check the generation.
6. A partition stays owned until the callback that gives it up has ended, so that it can commit.
7. Delivery of the partitions of a lost membership stops at once, and ``on_lost`` follows.
8. ``confirmed_until`` is the end of the session that the last successful heartbeat began. It counts
   from the sending. After it others may own the partitions, so poll() returns no records until a
   heartbeat succeeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from kohort.coordinator_client.machine._commands import Command
from kohort.coordinator_client.machine._events import Event, LeaveRequested
from kohort.coordinator_client.machine._failure_reports import FailureReports
from kohort.coordinator_client.machine._group_callbacks import GroupStatistics
from kohort.coordinator_client.machine._member import CommonMemberData
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.coordinator_client.machine._rebalance_history import RebalanceHistory, RebalanceRecord
from kohort.coordinator_client.machine._state import MemberState
from kohort.types import TopicPartition


class Membership(Protocol):
    """The part of a membership that the driver and the offsets use, for any group protocol.

    It consists of values, so that a protocol chooses its parts freely.
    """

    @property
    def state(self) -> MemberState: ...
    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def uses_epochs(self) -> bool: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def owned(self) -> frozenset[TopicPartition]: ...
    @property
    def withheld(self) -> frozenset[TopicPartition]: ...
    @property
    def losses(self) -> int: ...
    @property
    def releases(self) -> Mapping[TopicPartition, int]: ...
    @property
    def leave(self) -> LeaveRequested | None: ...
    @property
    def needs_poll(self) -> bool: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def is_finishing_rebalance(self) -> bool: ...
    @property
    def confirmed_until(self) -> float: ...
    @property
    def awaits_partitions_until(self) -> float: ...
    @property
    def history(self) -> Sequence[RebalanceRecord]: ...
    @property
    def outstanding(self) -> Mapping[Role, int]: ...

    def handle(self, event: Event, now: float) -> list[Command]: ...
    def next_deadline(self) -> float | None: ...
    def statistics(self) -> GroupStatistics: ...


class CommonMembership:
    """The data of one membership, as the driver and the offsets read it."""

    def __init__(
        self,
        member: CommonMemberData,
        pending: PendingCommands,
        failures: FailureReports,
        history: RebalanceHistory,
    ) -> None:
        self.member = member
        self._pending = pending
        self.failures = failures
        self.rebalances = history

    def _statistics(
        self, heartbeats: int, last_heartbeat: float | None, *, is_leader: bool
    ) -> GroupStatistics:
        rebalances, failures = self.rebalances, self.failures
        return GroupStatistics(
            reason=rebalances.reason,
            cause=self.member.cause,
            asked_at=rebalances.asked_at,
            join_obstruction=failures.join_obstruction,
            last_failure=failures.last,
            denied_operation=failures.denied_operation,
            is_fenced=failures.is_fenced,
            is_leader=is_leader,
            rebalances=rebalances.count,
            rebalance_seconds=rebalances.seconds,
            rebalance_longest=rebalances.longest,
            heartbeats=heartbeats,
            last_heartbeat=last_heartbeat,
        )

    @property
    def state(self) -> MemberState:
        return self.member.cell.state

    @property
    def topics(self) -> frozenset[str] | None:
        return self.member.topics

    @property
    def member_id(self) -> str:
        return self.member.member_id

    @property
    def generation(self) -> int:
        """The generation, or the member epoch of a consumer group."""
        return self.member.generation

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.member.owned

    @property
    def losses(self) -> int:
        return self.member.ended.memberships

    @property
    def releases(self) -> Mapping[TopicPartition, int]:
        return self.member.ended.partitions

    @property
    def is_fenced(self) -> bool:
        return self.failures.is_fenced

    @property
    def needs_poll(self) -> bool:
        """True if the next step of the membership waits for the caller to be inside poll()."""
        return self._pending.waits_for(Role.POLL)

    @property
    def outstanding(self) -> Mapping[Role, int]:
        """The tokens of the commands in progress by role."""
        return self._pending.tokens

    @property
    def history(self) -> deque[RebalanceRecord]:
        return self.rebalances.records
