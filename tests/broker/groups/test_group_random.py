"""Random requests of members: the group stays consistent and responds to every request."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kohort.broker.groups import GroupState
from tests.broker.groups.machine import Machine

CHOICES = (
    (("range", b"1"),),
    (("range", b"2"), ("rr", b"2")),
    (("rr", b"3"), ("range", b"3")),
    (("other", b"4"),),
)
INSTANCES = (None, None, None, "i", "j")


class Life:
    """Random requests of current members, former members and unknown ones."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine(
            initial_rebalance_delay_ms=self.rng.choice((0, 3_000)), max_size=self.rng.choice((3, 9))
        )
        self.known: list[str] = []
        self.sent: list[str] = []

    def member(self) -> str:
        current = [*self.machine.group.members, *self.machine.group.pending_joins]
        return self.rng.choice([*current, *current, *self.known, "", "nobody"])

    def step(self) -> None:
        rng, machine, group = self.rng, self.machine, self.machine.group
        self.known += [one for one in group.members if one not in self.known]
        generation = group.generation - rng.choice((0, 0, 0, 1))
        instance = rng.choice(INSTANCES)
        match rng.randrange(8):
            case 0 | 1:
                reply = machine.send_join(
                    self.member(),
                    rng.choice(CHOICES),
                    instance=instance,
                    version=rng.choice((3, 9, 9)),
                    session_ms=rng.choice((6_000, 30_000)),
                    rebalance_ms=rng.choice((5_000, 60_000)),
                )
                self.sent.append(reply)
            case 2 | 3:
                chosen = self.member()
                if rng.random() < 0.5 and group.leader:
                    chosen = group.leader
                given = {one: one.encode() for one in group.members}
                self.sent.append(machine.send_sync(chosen, generation, given))
            case 4:
                machine.beat(self.member(), generation, instance=instance)
            case 5:
                machine.commit(self.member(), generation, instance=instance)
            case 6:
                machine.leave(self.member() if rng.random() < 0.7 else "", instance=instance)
            case _:
                machine.pass_time(rng.choice((0.1, 1.0, 4.0, 20.0)))

    def check(self) -> None:
        group = self.machine.group
        members = group.members.values()
        assert [one.member_id for one in members] == list(group.members)
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert group.static_members == {
            one.group_instance_id: one.member_id for one in members if one.group_instance_id
        }
        assert not group.pending_joins & set(group.members)
        assert group.pending_syncs <= set(group.members)
        support = Counter(name for one in members for name, _ in one.protocols)
        assert +group._supported == support
        if any(one.parked_join for one in members):
            assert group.state is GroupState.PREPARING_REBALANCE
        if any(one.parked_sync for one in members):
            assert group.state is GroupState.COMPLETING_REBALANCE
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.members
            assert group.protocol in support
            assert support[group.protocol or ""] == len(group.members)


@pytest.mark.parametrize("seed", range(60))
def test_random_lives(seed: int) -> None:
    life = Life(seed)
    generation = 0
    for _ in range(150):
        life.step()
        life.check()
        assert life.machine.group.generation >= generation
        generation = life.machine.group.generation
    life.machine.pass_time(1_000)
    life.check()
    group = life.machine.group
    assert (group.state, group.members) == (GroupState.EMPTY, {}), (
        "the sessions of all members have ended"
    )
    assert set(life.sent) <= set(life.machine.answers), "every request has a response"
    assert life.machine.env.timers.next_deadline() is None
