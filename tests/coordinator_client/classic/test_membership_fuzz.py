"""Random orders of events: the state machine never raises, never stalls and reports correctly."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.coordinator_client.classic._embedded_protocol import (
    write_assignment,
    write_subscription,
)
from kohort.coordinator_client.classic._membership import ClassicMembership
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Cancel,
    Command,
    DescribeAssignment,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    SyncGroup,
)
from kohort.coordinator_client.machine._events import (
    AssignmentDescribed,
    AssignmentMade,
    CallbackDone,
    CommandFailed,
    CommitRejected,
    CoordinatorFound,
    Event,
    LeaveRequested,
    PollEntered,
    RejoinRequested,
    ResponseReceived,
    Subscribed,
    Tick,
    TopicsChanged,
)
from kohort.errors import (
    AssignorError,
    ErrorCode,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageDecodeError,
    UnsupportedVersionError,
)
from kohort.protocol import Response
from kohort.protocol.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from kohort.types import TopicPartition
from tests.coordinator_client.scripts import settings

CODES = [0] * 40 + [int(code) for code in ErrorCode] + [27, 22, 25, 16, 15, 14, 79] * 4
ERRORS = [
    KafkaConnectionError("gone"),
    KafkaTimeoutError("late"),
    OSError("gone"),
    MessageDecodeError("garbage"),
    UnsupportedVersionError("old"),
    AssignorError("no"),
    ValueError("odd"),
]
TOPICS = ("t", "u")
NOTHING = Assignment(())


class Fuzz:
    """A state machine, the commands in progress, and the partitions that the listener knows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cooperative = self.rng.random() < 0.5
        self.machine = ClassicMembership(
            settings(cooperative=self.cooperative, static=self.rng.random() < 0.2),
            random.Random(seed),
            count(1),
        )
        self.now = 100.0
        self.last_poll = 100.0
        self.waiting: dict[int, Command] = {}
        self.reported: frozenset[TopicPartition] = frozenset()
        """The partitions that the listener knows as owned."""
        self.generation = 0
        self.log: list[Any] = []

    def at(self, state: MemberState) -> bool:
        return self.machine.state is state

    def feed(self, event: Event) -> None:
        self.log.append((round(self.now, 3), event))
        for command in self.machine.handle(event, self.now):
            self.log.append(command)
            if isinstance(command, Cancel):
                self.waiting.pop(command.token, None)
            elif (token := getattr(command, "token", None)) is not None:
                self.waiting[token] = command
                self._check_callback(command)
        self._check()

    def _check_callback(self, command: Command) -> None:
        """Check a callback against the contract of the listener."""
        match command:
            case CallRevoked(_, partitions):
                assert partitions, "revoked was called without partitions"
                assert partitions <= self.reported
                self.reported -= partitions
            case CallLost(_, partitions):
                # A member without a leader may lose some partitions and stay in the group.
                names_all = "lost names all owned or all withheld partitions"
                assert partitions in (self.reported, self.machine.withheld), names_all
                self.reported -= partitions
            case CallAssigned(_, added, assignment):
                assert not added & self.reported
                assert self.reported | added == assignment
                self.reported = assignment
            case _:
                pass

    def _check(self) -> None:
        machine = self.machine
        callbacks = [
            c for c in self.waiting.values() if isinstance(c, CallRevoked | CallLost | CallAssigned)
        ]
        assert len(callbacks) <= 1, "one callback at a time"
        if not callbacks:
            assert machine.owned | machine.withheld == self.reported
        if machine.state is MemberState.STABLE:
            assert machine.generation >= 0
            assert machine.member_id
        if machine.state is MemberState.UNSUBSCRIBED:
            assert not machine.owned
            assert not machine.outstanding
        elif not (machine.state is MemberState.FAILED and machine.is_fenced):
            assert machine.outstanding or machine.next_deadline() is not None, (
                "no command and no deadline"
            )
        assert set(machine.outstanding.values()) <= set(self.waiting), (
            "a pending command was dropped"
        )
        joins = [c for c in self.waiting.values() if isinstance(c, JoinGroup | SyncGroup)]
        assert len(joins) <= 1

    # --- one step -------------------------------------------------------------------------------

    def step(self) -> None:
        actions: list[Callable[[], None]] = [self.answer] * 6 + [self.tick] * 2 + [self.want]
        self.rng.choice(actions)()

    def tick(self) -> None:
        deadline = self.machine.next_deadline()
        jump = self.rng.choice([0.01, 0.3, 5.0, 400.0])
        if deadline is not None and self.rng.random() < 0.7:
            self.now = max(self.now, deadline)
        else:
            self.now += jump
        if self.rng.random() < 0.8:
            self.last_poll = self.now
        self.feed(Tick(self.last_poll))
        after = self.machine.next_deadline()
        assert after is None or after > self.now, "spins"

    def want(self) -> None:
        rng = self.rng
        topics = frozenset(rng.sample(TOPICS, rng.randint(0, 2)))
        events: list[Event] = [
            Subscribed(topics),
            Subscribed(frozenset({"t"})),
            Subscribed(frozenset({"t", "u"})),
            LeaveRequested("bye", self.now + rng.choice([0.0, 1.0, 30.0]), rng.random() < 0.7),
            RejoinRequested("please"),
            CoordinatorFound(),
            TopicsChanged(ClusterTopics({"t": rng.randint(1, 4), "u": 2})),
            CommitRejected(rng.choice(CODES), self.machine.generation, self.machine.member_id),
        ]
        self.feed(rng.choice(events))

    def answer(self) -> None:
        if not self.waiting:
            self.want()
            return
        token = self.rng.choice(sorted(self.waiting))
        command = self.waiting.pop(token)
        if self.rng.random() < 0.1 and not isinstance(
            command, AwaitPoll | CallRevoked | CallLost | CallAssigned
        ):
            self.feed(CommandFailed(token, self.rng.choice(ERRORS)))
            return
        match command:
            case AwaitPoll():
                self.last_poll = self.now
                self.feed(PollEntered(token))
            case CallRevoked() | CallLost() | CallAssigned():
                self.feed(CallbackDone(token))
            case DescribeAssignment():
                described = ClusterTopics({"t": self.rng.randint(1, 4)})
                self.feed(AssignmentDescribed(token, self.rng.choice([None, described])))
            case MakeAssignment(_, _, members):
                self.feed(
                    AssignmentMade(token, dict.fromkeys(members, NOTHING), ClusterTopics({"t": 4}))
                )
            case _:
                self.feed(ResponseReceived(token, self.response(command)))

    def response(self, command: Command) -> Response:
        rng, code = self.rng, self.rng.choice(CODES)
        match command:
            case JoinGroup(member_id=member_id):
                self.generation += 1
                mine = member_id or f"m{self.generation}"
                leader = rng.choice([mine, "other", ""])
                said = write_subscription(Subscription(("t",)))
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=-1 if code else self.generation,
                    member_id=mine if code in (0, 79) else member_id,
                    leader=leader,
                    protocol_name=rng.choice(["range"] * 20 + ["strange"]),
                    protocol_type=rng.choice(["consumer"] * 20 + [None, "connect"]),
                    skip_assignment=rng.random() < 0.1,
                    members=[
                        JoinGroupResponse.JoinGroupResponseMember(
                            member_id=mine, metadata=rng.choice([said] * 9 + [b""])
                        )
                    ],
                )
            case SyncGroup():
                some = [
                    TopicPartition(topic, number)
                    for topic in (*TOPICS, "v")
                    for number in range(3)
                    if rng.random() < 0.4
                ]
                blob = rng.choice(
                    [write_assignment(Assignment(tuple(some)))] * 20 + [b"\x00", b"\xff\xff\xff"]
                )
                return SyncGroupResponse(error_code=code, assignment=blob)
            case Heartbeat():
                return HeartbeatResponse(error_code=code)
            case LeaveGroup():
                return LeaveGroupResponse(error_code=code)
            case _:
                raise AssertionError(command)


@pytest.mark.parametrize("block", range(20))
def test_any_order_of_events_leaves_a_machine_that_goes_on(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        fuzz = Fuzz(seed)
        try:
            for _ in range(300):
                fuzz.step()
            _recovers(fuzz)
        except BaseException:
            print(f"seed {seed}")
            for line in fuzz.log[-40:]:
                print(line)
            raise


def _recovers(fuzz: Fuzz) -> None:
    """Check that the member recovers and leaves with a well-behaved group and caller."""
    fuzz.feed(Subscribed(frozenset({"t"})))
    fuzz.feed(RejoinRequested("for the sake of the test"))
    fuzz.rng = random.Random(0)
    for _ in range(400):
        if fuzz.at(MemberState.STABLE) and fuzz.machine.topics == frozenset({"t"}):
            break
        _behave(fuzz)
    assert fuzz.at(MemberState.STABLE)
    assert {tp.topic for tp in fuzz.machine.owned} <= {"t"}
    fuzz.feed(LeaveRequested("bye", fuzz.now + 5, True))
    for _ in range(20):
        if fuzz.at(MemberState.UNSUBSCRIBED):
            break
        _behave(fuzz)
    assert fuzz.at(MemberState.UNSUBSCRIBED)
    assert fuzz.reported == frozenset()


def _behave(fuzz: Fuzz) -> None:
    """Respond to the oldest command without an error, or let time pass."""
    for token in sorted(fuzz.waiting):
        command = fuzz.waiting.pop(token)
        match command:
            case AwaitPoll():
                fuzz.last_poll = fuzz.now
                fuzz.feed(PollEntered(token))
            case CallRevoked() | CallLost() | CallAssigned():
                fuzz.feed(CallbackDone(token))
            case MakeAssignment(_, _, members):
                fuzz.feed(
                    AssignmentMade(token, dict.fromkeys(members, NOTHING), ClusterTopics({"t": 4}))
                )
            case JoinGroup():
                fuzz.generation += 1
                fuzz.feed(
                    ResponseReceived(
                        token,
                        JoinGroupResponse(
                            generation_id=fuzz.generation,
                            member_id="me",
                            leader="other",
                            protocol_name="range",
                        ),
                    )
                )
            case SyncGroup():
                blob = write_assignment(Assignment((TopicPartition("t", 0),)))
                fuzz.feed(ResponseReceived(token, SyncGroupResponse(assignment=blob)))
            case Heartbeat():
                fuzz.feed(ResponseReceived(token, HeartbeatResponse()))
            case LeaveGroup():
                fuzz.feed(ResponseReceived(token, LeaveGroupResponse()))
            case DescribeAssignment():
                fuzz.feed(AssignmentDescribed(token, ClusterTopics({"t": 4})))
            case _:
                raise AssertionError(command)
        return
    deadline = fuzz.machine.next_deadline()
    if deadline is not None:
        fuzz.now = fuzz.last_poll = max(fuzz.now, deadline)
        fuzz.feed(Tick(fuzz.last_poll))
