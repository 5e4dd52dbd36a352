"""Scripts that play the coordinator and the caller for a member of a consumer group."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.consumer._member import ConsumerMemberSettings
from kohort.coordinator_client.consumer._membership import ConsumerMembership
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Cancel,
    Command,
    ConsumerHeartbeat,
    IdPartition,
    ResolveTopics,
)
from kohort.coordinator_client.machine._events import (
    CallbackDone,
    CommandFailed,
    Event,
    LeaveRequested,
    PollEntered,
    ResponseReceived,
    Subscribed,
    Tick,
    TopicsResolved,
)
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse
from kohort.transport import Backoff
from kohort.types import TopicPartition

C = TypeVar("C", bound=Command)

TOPICS = {bytes([number]) * 16: name for number, name in enumerate(("t", "u", "v"), 1)}
"""Names of topics by id."""
RECREATED = b"\xaa" * 16
"""The id of topic "t" after it was deleted and created again."""
IDS = {name: topic_id for topic_id, name in TOPICS.items()}
INTERVAL = 5.0


def parts(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def by_id(*numbers: int, topic: str = "t") -> frozenset[IdPartition]:
    return frozenset((IDS[topic], number) for number in numbers)


def settings(**changes: Any) -> ConsumerMemberSettings:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 45.0,
        "max_poll_interval": 300.0,
        "backoff": Backoff(0.1, 1.0),
        **changes,
    }
    return ConsumerMemberSettings(**values)


class ConsumerScript:
    """A state machine, its clock, and the commands without a response."""

    def __init__(self, **changes: Any) -> None:
        self.settings = settings(**changes)
        self.machine = ConsumerMembership(
            self.settings, random.Random(1), count(1), random.Random(2)
        )
        self.now = 1000.0
        self.commands: list[Command] = []
        self.cancelled: list[int] = []
        self.last_poll = self.now
        self.names: Mapping[bytes, str] = dict(TOPICS)
        self.resolves = True
        """True to resolve the ids of topics at once."""

    def at(self, state: MemberState) -> bool:
        return self.machine.state is state

    # --- events ---------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Pass an event and return the commands that it led to."""
        found = self.machine.handle(event, self.now)
        for command in found:
            if isinstance(command, Cancel):
                self.cancelled.append(command.token)
                self.commands = [
                    each for each in self.commands if getattr(each, "token", None) != command.token
                ]
            else:
                self.commands.append(command)
        if self.resolves and self.has(ResolveTopics):
            self.resolve()
        return found

    def subscribe(self, *topics: str, regex: str = "") -> None:
        self.handle(Subscribed(frozenset(topics or ("t",)), regex))

    def poll(self) -> None:
        """Complete the wait for poll()."""
        self.last_poll = self.now
        self.handle(PollEntered(self.take(AwaitPoll).token, self.now))

    def called_back(self, kind: type[CallAssigned | CallRevoked | CallLost]) -> None:
        self.handle(CallbackDone(self.take(kind).token))

    def resolve(self) -> None:
        """Complete the look-up of topics."""
        command = self.take(ResolveTopics)
        names = {key: self.names[key] for key in command.ids if key in self.names}
        self.handle(TopicsResolved(command.token, names))

    def answer(
        self,
        epoch: int | None = None,
        assignment: Iterable[IdPartition] | None = None,
        *,
        error: int = 0,
        message: str | None = None,
        interval: float = INTERVAL,
    ) -> ConsumerHeartbeat:
        """Complete the heartbeat in flight and return it."""
        sent = self.take(ConsumerHeartbeat)
        response = ConsumerGroupHeartbeatResponse(
            error_code=error,
            error_message=message,
            member_epoch=self.machine.generation if epoch is None else epoch,
            heartbeat_interval_ms=round(interval * 1000),
        )
        if assignment is not None:
            response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponse.TopicPartitions(
                        topic_id=topic_id, partitions=[number]
                    )
                    for topic_id, number in sorted(assignment)
                ]
            )
        self.handle(ResponseReceived(sent.token, response))
        return sent

    def fail(self, kind: type[C], error: Exception) -> C:
        """Complete a command with an error and return it."""
        command = self.take(kind)
        self.handle(CommandFailed(command.token, error))  # type: ignore[union-attr]
        return command

    def leave(self, *, leave_group: bool = True, timeout: float = 10.0) -> None:
        self.handle(LeaveRequested("closed", self.now + timeout, leave_group))

    def pass_time(self, seconds: float, *, polls: bool = True) -> None:
        """Advance the clock over all deadlines up to then."""
        end = self.now + seconds
        while True:
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            if polls:
                self.last_poll = self.now
            self.handle(Tick(self.last_poll))
        self.now = end
        if polls:
            self.last_poll = self.now
        self.handle(Tick(self.last_poll))

    # --- commands -------------------------------------------------------------------------------

    def has(self, kind: type[Command]) -> bool:
        return any(isinstance(each, kind) for each in self.commands)

    def take(self, kind: type[C]) -> C:
        """Remove and return the oldest command of a kind."""
        for command in self.commands:
            if isinstance(command, kind):
                self.commands.remove(command)
                return command
        raise AssertionError(f"no {kind.__name__} among {self.commands}")

    def none_but(self, *kinds: type[Command]) -> bool:
        """True if all commands without a response are of these kinds."""
        return all(isinstance(each, kinds) for each in self.commands)

    # --- ways to a state ------------------------------------------------------------------------

    def to_joining(self, *topics: str) -> None:
        self.subscribe(*topics)
        self.poll()
        assert self.at(MemberState.JOINING)

    def to_stable(self, *numbers: int, epoch: int = 2, topics: Iterable[str] = ()) -> None:
        """Join and get these partitions of topic "t"."""
        self.to_joining(*topics)
        self.answer(epoch, by_id(*numbers))
        self.poll()
        self.called_back(CallAssigned)
        if numbers:
            assert self.at(MemberState.ACKNOWLEDGING)
            self.answer(epoch)
        assert self.at(MemberState.STABLE)
