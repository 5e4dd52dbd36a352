"""Random requests to one consumer group: one owner of each partition, and records that reload."""

from __future__ import annotations

import random

import pytest

from kohort.broker.groups import (
    ConsumerGroup,
    GroupEnvironment,
    GroupLimits,
    load_groups,
)
from tests.broker.groups.consumer.consumer_machine import ConsumerMachine

STEPS = 80
NAMES = ["t", "u", "v"]
PATTERNS = ["[tu]", ".*", "v|w"]


class Client:
    """A member as its client knows it."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}


class Chaos:
    """A machine and its clients, which do one random thing after another."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        interval = self.rng.choice([0, 1000])
        self.machine = ConsumerMachine(consumer_assignment_interval_ms=interval)
        for name in NAMES:
            self.machine.topics.create(name, self.rng.randint(1, 4))
        self.clients: list[Client] = []
        self._joined = 0

    def join(self) -> None:
        self._joined += 1
        instance = self.rng.choice([None, None, "i", "j"])
        client = Client(f"m{self._joined}", instance)
        names = self.rng.sample(NAMES, self.rng.randint(0, 3))
        regex = self.rng.choice(["", "", *PATTERNS])
        assignor = self.rng.choice([None, "range", "uniform"])
        response = self.machine.join(
            client.member_id,
            names,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            instance_id=instance,
        )
        if response.error_code == 0:
            self.clients = [
                each for each in self.clients if instance is None or each.instance_id != instance
            ]
            self.clients.append(client)
            client.epoch = response.member_epoch
            client.owned = self.machine.assignment(response) or {}
        else:
            assert response.error_code == 111

    def beat(self) -> None:
        client = self.rng.choice(self.clients)
        tells = self.rng.random() < 0.7
        subscription = {}
        if self.rng.random() < 0.1:
            subscription = {"subscribed_topic_names": self.rng.sample(NAMES, 2)}
        response = self.machine.beat(
            client.member_id,
            client.epoch,
            client.owned if tells else None,
            instance_id=client.instance_id,
            **subscription,
        )
        if response.error_code:
            assert response.error_code in (25, 69, 110)
            self.clients.remove(client)
            return
        client.epoch = response.member_epoch
        assigned = self.machine.assignment(response)
        if assigned is not None:
            client.owned = assigned

    def leave(self) -> None:
        client = self.rng.choice(self.clients)
        self.clients.remove(client)
        epoch = -2 if client.instance_id and self.rng.random() < 0.7 else -1
        self.machine.beat(client.member_id, epoch, instance_id=client.instance_id)

    def crash(self) -> None:
        self.clients.remove(self.rng.choice(self.clients))

    def wait(self) -> None:
        self.machine.pass_time(self.rng.choice([0.1, 1, 11, 30]))

    def grow(self) -> None:
        name = self.rng.choice(NAMES)
        topic = self.machine.topics.named(name)
        assert topic is not None
        if len(topic.racks) < 6:
            self.machine.topics.grow(name, len(topic.racks) + 1)

    def step(self) -> None:
        acts = [self.join, self.wait, self.grow]
        if self.clients:
            acts += [*[self.beat] * 12, self.leave, self.crash]
        self.rng.choice(acts)()


def check(machine: ConsumerMachine) -> None:
    """Check the group, and that its records load to the same group."""
    group = machine.groups.get("g")
    if group is None:
        return
    assert isinstance(group, ConsumerGroup)
    held = [each for member in group.members.values() for each in member.held]
    assert len(held) == len(set(held)), "a partition has two owners"
    assert group.assignment_epoch <= group.epoch
    targets = [
        (topic_id, partition)
        for target in group.targets.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    ]
    assert len(targets) == len(set(targets)), "a partition has two targets"
    assert group.targets.keys() <= group.members.keys()
    env = GroupEnvironment(GroupLimits(), random.Random(1), topics=machine.topics)
    records = [(record.key, record.value) for record in machine.appended]
    loaded = load_groups(records, env, machine.now)["g"]
    assert isinstance(loaded, ConsumerGroup)
    assert loaded.members == group.members
    assert loaded.targets == group.targets
    assert loaded.regexes == group.regexes
    assert (loaded.epoch, loaded.assignment_epoch, loaded.metadata_hash) == (
        group.epoch,
        group.assignment_epoch,
        group.metadata_hash,
    )


@pytest.mark.parametrize("seed", range(30))
def test_group_stays_consistent_under_random_requests(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
        check(chaos.machine)
    settle(chaos)


def settle(chaos: Chaos) -> None:
    """Let the clients do nothing but heartbeats, until each has its target assignment."""
    for _ in range(40):
        chaos.machine.pass_time(2)
        for client in list(chaos.clients):
            response = chaos.machine.beat(
                client.member_id, client.epoch, client.owned, instance_id=client.instance_id
            )
            if response.error_code:
                chaos.clients.remove(client)
                continue
            client.epoch = response.member_epoch
            assigned = chaos.machine.assignment(response)
            if assigned is not None:
                client.owned = assigned
    if chaos.clients:
        group = chaos.machine.group
        assert group.state.value == "Stable"
        for member_id, target in group.targets.items():
            assigned_now = group.members[member_id].assigned
            assert {key: frozenset(each) for key, each in assigned_now.items()} == target
