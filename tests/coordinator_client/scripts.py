"""Scripts that play the coordinator and the caller for a membership state machine, step by step."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.coordinator_client.classic._embedded_protocol import (
    write_assignment,
    write_subscription,
)
from kohort.coordinator_client.classic._member import MemberSettings
from kohort.coordinator_client.classic._membership import ClassicMembership
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Cancel,
    Command,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    SyncGroup,
)
from kohort.coordinator_client.machine._events import (
    AssignmentMade,
    CallbackDone,
    CommandFailed,
    Event,
    LeaveRequested,
    PollEntered,
    ResponseReceived,
    Subscribed,
    Tick,
)
from kohort.protocol import Response
from kohort.protocol.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kohort.transport import Backoff
from kohort.types import TopicPartition

C = TypeVar("C", bound=Command)


def parts(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def settings(**changes: Any) -> MemberSettings:
    values: dict[str, Any] = {
        "group_id": "g",
        "protocols": ("range", "roundrobin"),
        "heartbeat_interval": 3.0,
        "session_timeout": 45.0,
        "max_poll_interval": 300.0,
        "backoff": Backoff(0.1, 1.0),
        **changes,
    }
    return MemberSettings(**values)


class Script:
    """A state machine, its clock, and the commands without a response."""

    def __init__(self, **changes: Any) -> None:
        self.settings = settings(**changes)
        self.machine = ClassicMembership(self.settings, random.Random(1), count(1))
        self.now = 1000.0
        self.commands: list[Command] = []
        self.cancelled: list[int] = []
        self.last_poll = self.now

    def at(self, state: MemberState) -> bool:
        return self.machine.state is state

    def feed(self, event: Event) -> list[Command]:
        new = self.machine.handle(event, self.now)
        for command in new:
            if isinstance(command, Cancel):
                self.cancelled.append(command.token)
                self.commands = [
                    other
                    for other in self.commands
                    if getattr(other, "token", None) != command.token
                ]
            else:
                self.commands.append(command)
        return new

    def take(self, kind: type[C]) -> C:
        """Return the oldest command of this type that has no response."""
        for command in self.commands:
            if isinstance(command, kind):
                self.commands.remove(command)
                return command
        raise AssertionError(f"no {kind.__name__} among {self.commands}")

    def has(self, kind: type[Command]) -> bool:
        return any(isinstance(command, kind) for command in self.commands)

    # --- the caller -----------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.feed(Subscribed(frozenset(topics or ("t",))))

    def poll(self) -> None:
        """Call poll() as the caller does."""
        self.last_poll = self.now
        self.feed(PollEntered(self.take(AwaitPoll).token))

    def called_back(
        self, kind: type[CallRevoked] | type[CallLost] | type[CallAssigned]
    ) -> frozenset[TopicPartition]:
        """Run the pending callback and return its partitions."""
        call = self.take(kind)
        about = call.added if isinstance(call, CallAssigned) else call.partitions
        self.feed(CallbackDone(call.token))
        return about

    def leave(self, *, timeout: float = 5.0, leave_group: bool = True) -> None:
        self.feed(LeaveRequested("closed", self.now + timeout, leave_group))

    # --- time -----------------------------------------------------------------------------------

    def wait(self, seconds: float, *, polled: bool = True) -> None:
        """Let time pass in the ticks that the state machine asks for."""
        end = self.now + seconds
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            if polled:
                self.last_poll = self.now
            self.feed(Tick(self.last_poll))
            after = self.machine.next_deadline()
            assert after is None or after > self.now, f"{self.machine.state} would spin"
        self.now = end

    # --- the coordinator ------------------------------------------------------------------------

    def answer(self, command: Any, response: Response) -> None:
        self.feed(ResponseReceived(command.token, response))

    def refuse(self, kind: type[Command], error: Exception) -> None:
        command: Any = self.take(kind)
        self.feed(CommandFailed(command.token, error))

    def join_answer(
        self,
        error_code: int = 0,
        *,
        generation: int = 1,
        member_id: str = "me",
        leader: str = "other",
        protocol: str = "range",
        members: Mapping[str, Subscription] | None = None,
        skip_assignment: bool = False,
    ) -> None:
        self.answer(
            self.take(JoinGroup),
            JoinGroupResponse(
                error_code=error_code,
                generation_id=-1 if error_code else generation,
                protocol_type="consumer",
                protocol_name=protocol,
                leader=leader,
                member_id=member_id,
                skip_assignment=skip_assignment,
                members=[
                    JoinGroupResponse.JoinGroupResponseMember(
                        member_id=name, metadata=write_subscription(said)
                    )
                    for name, said in (members or {}).items()
                ],
            ),
        )

    def sync_answer(
        self, assigned: Iterable[TopicPartition] = (), error_code: int = 0, **fields: Any
    ) -> None:
        self.answer(
            self.take(SyncGroup),
            SyncGroupResponse(
                error_code=error_code,
                assignment=b""
                if error_code
                else write_assignment(Assignment(tuple(sorted(assigned)))),
                **fields,
            ),
        )

    def assign(self, assignments: Mapping[str, Iterable[TopicPartition]], count: int = 4) -> None:
        """Complete the assignor's computation with these assignments."""
        event = AssignmentMade(
            self.take(MakeAssignment).token,
            {member: Assignment(tuple(sorted(given))) for member, given in assignments.items()},
            ClusterTopics({"t": count}),
        )
        self.feed(event)

    def heartbeat_answer(self, error_code: int = 0) -> None:
        self.answer(self.take(Heartbeat), HeartbeatResponse(error_code=error_code))

    def beat(self, error_code: int = 0) -> None:
        """Wait for the next heartbeat and respond to it."""
        if not self.has(Heartbeat):
            self.wait(self.settings.heartbeat_interval)
        self.heartbeat_answer(error_code)

    def leave_answer(self, error_code: int = 0) -> None:
        self.answer(self.take(LeaveGroup), LeaveGroupResponse(error_code=error_code))

    # --- whole stretches ------------------------------------------------------------------------

    def to_joining(self) -> None:
        self.subscribe()
        self.poll()
        assert self.at(MemberState.JOINING)

    def to_syncing(self) -> None:
        self.to_joining()
        self.join_answer()
        assert self.at(MemberState.SYNCING)

    def to_reconciling(self, *numbers: int) -> None:
        self.to_syncing()
        self.sync_answer(parts(*numbers or (0, 1)))
        assert self.at(MemberState.RECONCILING)

    def to_stable(self, *numbers: int) -> None:
        self.to_reconciling(*numbers)
        self.poll()
        assert self.called_back(CallAssigned) == parts(*numbers or (0, 1))
        assert self.at(MemberState.STABLE)
