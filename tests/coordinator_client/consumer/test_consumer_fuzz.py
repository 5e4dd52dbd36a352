"""Members of a consumer group with random events, against a coordinator that is always right."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    ConsumerHeartbeat,
    IdPartition,
    ReportFailure,
    ResolveTopics,
    ResumeDelivery,
    StopDelivery,
)
from kohort.errors import ErrorCode, KafkaConnectionError
from tests.coordinator_client.consumer_scripts import IDS, TOPICS, ConsumerScript

ALL = frozenset((topic_id, number) for topic_id in TOPICS for number in range(3))
STEPS = 300
EMPTY: frozenset[IdPartition] = frozenset()


@dataclass
class Coordinator:
    """A coordinator with one member, as section "reconcile" of KIP-848 describes it."""

    epoch: int = 1
    target: frozenset[IdPartition] = EMPTY
    member_epoch: int | None = None
    previous_epoch: int = -1
    assigned: frozenset[IdPartition] = EMPTY
    pending: frozenset[IdPartition] = EMPTY
    topics: frozenset[str] = frozenset()
    members: set[str] = field(default_factory=set)

    def heartbeat(self, sent: ConsumerHeartbeat) -> tuple[int, int, frozenset[IdPartition] | None]:
        """Return the error code, the epoch and the assignment of a response."""
        if sent.epoch < 0:
            self.remove()
            return 0, sent.epoch, None
        if sent.epoch == 0:
            assert sent.is_full and sent.owned == EMPTY, "a join has all fields and owns nothing"
            self.assigned = self.pending = EMPTY
            self.member_epoch, self.previous_epoch = self.epoch, -1
        elif self.member_epoch is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, 0, None
        elif sent.epoch != self.member_epoch:
            had = self.assigned | self.pending
            has_missed = sent.epoch == self.previous_epoch and sent.owned is not None
            if not has_missed or not had.issuperset(sent.owned or EMPTY):
                return ErrorCode.FENCED_MEMBER_EPOCH, 0, None
        if sent.topics is not None:
            self.topics = sent.topics
        before = self.assigned
        self.reconcile(sent.owned)
        is_told = sent.is_full or self.assigned != before
        assert self.member_epoch is not None
        return 0, self.member_epoch, self.assigned if is_told else None

    def reconcile(self, owned: frozenset[IdPartition] | None) -> None:
        if self.pending and (owned is None or owned & self.pending):
            return
        self.pending = EMPTY
        target = frozenset(each for each in self.target if TOPICS[each[0]] in self.topics)
        revoke = self.assigned - target
        if revoke and (owned is None or owned & revoke):
            self.assigned, self.pending = self.assigned & target, revoke
            return
        self.assigned = target
        if self.member_epoch != self.epoch:
            self.previous_epoch, self.member_epoch = self.member_epoch or -1, self.epoch

    def remove(self) -> None:
        self.member_epoch, self.assigned, self.pending = None, EMPTY, EMPTY

    def change(self, target: frozenset[IdPartition]) -> None:
        self.target = target
        self.epoch += 1


class Life:
    """One member that meets random events, with the invariants of its partitions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.script = ConsumerScript()
        self.script.resolves = False
        self.coordinator = Coordinator()
        self.withheld: frozenset[object] = frozenset()
        self.owned: frozenset[object] = frozenset()
        """The partitions as the listener knows them."""
        self.calls = 0

    def run(self) -> None:
        self.script.subscribe(*TOPICS.values())
        for _ in range(STEPS):
            self.step()
            self.check()
        self.settle()

    def step(self) -> None:
        script, rng, coordinator = self.script, self.rng, self.coordinator
        match rng.randrange(12):
            case 0:
                coordinator.change(frozenset(each for each in sorted(ALL) if rng.random() < 0.5))
            case 1:
                names = [name for name in IDS if rng.random() < 0.7]
                script.subscribe(*names or ["t"])
            case 2:
                script.pass_time(rng.choice([0.05, 0.5, 5.0, 20.0]))
            case 3:
                coordinator.remove()
            case 4:
                self.lose_response()
            case 5:
                self.refuse(rng.choice([14, 15, 16, 25, 110, 69]))
            case 6 if rng.random() < 0.1:
                script.now = script.last_poll + 301.0
                script.pass_time(0.0, polls=False)
            case _:
                self.complete()

    def complete(self) -> None:
        """Complete one command."""
        script = self.script
        kinds = [kind for kind in KINDS if script.has(kind)]
        if not kinds:
            script.pass_time(1.0)
            return
        match self.rng.choice(kinds):
            case kind if kind is ConsumerHeartbeat:
                self.answer()
            case kind if kind is AwaitPoll:
                script.poll()
            case kind if kind is ResolveTopics:
                script.names = {
                    key: name for key, name in TOPICS.items() if self.rng.random() < 0.8
                }
                script.resolve()
            case _:
                self.call()

    def answer(self) -> None:
        sent = next(each for each in self.script.commands if isinstance(each, ConsumerHeartbeat))
        error, epoch, assignment = self.coordinator.heartbeat(sent)
        self.script.answer(epoch, assignment, error=error)

    def refuse(self, code: int) -> None:
        if self.script.has(ConsumerHeartbeat):
            if code in (25, 69):
                self.coordinator.remove()
            self.script.answer(error=code)

    def lose_response(self) -> None:
        """Let the coordinator handle a heartbeat whose response does not arrive."""
        for each in self.script.commands:
            if isinstance(each, ConsumerHeartbeat):
                self.coordinator.heartbeat(each)
                self.script.fail(ConsumerHeartbeat, KafkaConnectionError("gone"))
                return

    def call(self) -> None:
        """Run the callback in progress."""
        command = next(each for each in self.script.commands if isinstance(each, CALLS))
        if isinstance(command, CallAssigned):
            assert self.owned.isdisjoint(command.added)
            self.owned |= command.added
            assert self.owned == command.assignment
        else:
            assert command.partitions <= self.owned, "each is given up once"
            self.owned -= command.partitions
            self.withheld -= command.partitions
        self.calls += 1
        self.script.called_back(type(command))

    def check(self) -> None:
        for each in list(self.script.commands):
            if isinstance(each, StopDelivery):
                self.withheld |= each.partitions
            elif isinstance(each, ResumeDelivery):
                assert each.partitions <= self.withheld
                self.withheld -= each.partitions
            elif isinstance(each, ReportFailure):
                pass
            else:
                continue
            self.script.commands.remove(each)
        calls = [each for each in self.script.commands if isinstance(each, CALLS)]
        assert len(calls) <= 1, "one callback at a time"
        beats = [each for each in self.script.commands if isinstance(each, ConsumerHeartbeat)]
        assert len([each for each in beats if each.epoch >= 0]) <= 1, "one heartbeat in flight"

    def settle(self) -> None:
        """Check that the member owns the whole target after a time without faults."""
        self.script.subscribe(*TOPICS.values())
        self.coordinator.change(ALL)
        for _ in range(400):
            self.script.names = dict(TOPICS)
            for kind in KINDS:
                while self.script.has(kind):
                    if kind is ConsumerHeartbeat:
                        self.answer()
                    elif kind is AwaitPoll:
                        self.script.poll()
                    elif kind is ResolveTopics:
                        self.script.resolve()
                    else:
                        self.call()
                    self.check()
            self.script.pass_time(1.0)
            self.check()
        machine = self.script.machine
        assert machine.state is MemberState.STABLE
        assert {(IDS[tp.topic], tp.partition) for tp in machine.owned} == ALL
        assert self.owned == machine.owned
        assert self.withheld == frozenset()
        assert machine.generation == self.coordinator.epoch == self.coordinator.member_epoch


CALLS = (CallAssigned, CallRevoked, CallLost)
KINDS = (ConsumerHeartbeat, AwaitPoll, ResolveTopics, *CALLS)


@pytest.mark.parametrize("seed", range(60))
def test_member_settles_after_random_events(seed: int) -> None:
    Life(seed).run()
