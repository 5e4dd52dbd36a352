"""One seed: a cluster, a group, and what happens to both until everything is healed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import anyio
from anyio.abc import TaskGroup

from kohort.testing import MemoryCluster
from kohort.types import TopicPartition
from tests.simulation.events import (
    EventLog,
    Healed,
    NeverSettled,
    Operation,
    Processed,
    Produced,
    Settled,
    now,
)
from tests.simulation.member import GROUP, MAX_POLL_INTERVAL, SESSION, Habits, Member

SETTLE = 3 * (SESSION + MAX_POLL_INTERVAL)
"""Seconds after the last fault within which all must be well."""
TOPICS = {"t": 4, "u": 3}


class World:
    """Members and cluster, and the one generator from which all that happens is drawn."""

    def __init__(self, cluster: MemoryCluster, log: EventLog, rng: random.Random) -> None:
        self.cluster = cluster
        self.log = log
        self.rng = rng
        self.members: dict[str, Member] = {}
        """The members that run, by their name without the number of their life."""
        self.tasks: TaskGroup | None = None
        self._lives: Counter[str] = Counter()
        self._produced: Counter[TopicPartition] = Counter()

    def note(self, what: str, *, fault: bool = False) -> None:
        self.log.add(Operation(at=now(), what=what, fault=fault))

    # --- members --------------------------------------------------------------------------------

    def start(self, slot: str, habits: Habits, topics: Iterable[str]) -> Member:
        """A new life in a slot that is free."""
        assert self.tasks is not None
        self._lives[slot] += 1
        name = f"{slot}.{self._lives[slot]}"
        member = Member(
            name,
            self.cluster,
            self.log,
            habits,
            frozenset(topics),
            random.Random(self.rng.random()),
        )
        self.members[slot] = member
        self.tasks.start_soon(member.run)
        return member

    def running(self) -> list[tuple[str, Member]]:
        """Slots whose members live and are not about to end."""
        return [(slot, member) for slot, member in self.members.items() if member.alive]

    def free(self, slots: Iterable[str]) -> list[str]:
        """Slots whose members have ended, or are no more."""
        taken = {
            slot
            for slot, member in self.members.items()
            if not member.crashed and not member.ended.is_set()
        }
        return [slot for slot in slots if slot not in taken]

    # --- records --------------------------------------------------------------------------------

    def produce(self, topic: str, partition: int, count: int) -> None:
        place = TopicPartition(topic, partition)
        first = self._produced[place]
        values = [f"{topic}{partition}.{first + index}" for index in range(count)]
        for value, at in zip(
            values, self.cluster.produce(topic, values, partition=partition), strict=True
        ):
            self.log.add(Produced(at=now(), partition=place, offset=at.offset, value=value))
        self._produced[place] += count

    # --- the end --------------------------------------------------------------------------------

    def _missing(self, partitions: frozenset[TopicPartition]) -> str:
        """What is left to come before all is well; empty when nothing is."""
        running = self.running()
        group = self.cluster.group(GROUP)
        if not group.is_stable:
            return f"the group is {group.state}"
        names = sorted(member.name for _, member in running)
        in_group = sorted(member.client_id for member in group.members)
        if names != in_group:
            return f"{','.join(in_group)} are in the group, {','.join(names)} run"
        for _, member in running:
            theirs = frozenset(member.consumer.assignment())
            given = {m.assignment for m in group.members if m.client_id == member.name}
            if given != {theirs}:
                return f"{member.name} has another assignment than the group says"
        processed: Counter[TopicPartition] = Counter()
        for tp, offsets in self._processed().items():
            processed[tp] = len(offsets)
        left = sorted(tp for tp in partitions if processed[tp] < self._produced[tp])
        return f"records of {left[0].topic}-{left[0].partition} are not processed" if left else ""

    def _processed(self) -> dict[TopicPartition, set[int]]:
        found: dict[TopicPartition, set[int]] = {}
        for event in self.log.of(Processed):
            found.setdefault(event.partition, set()).update(event.offsets)
        return found

    async def settle(self) -> None:
        """Wait until all is well; says so in the log, or what is missing."""
        self.log.add(Healed(at=now()))
        wanted = frozenset(
            TopicPartition(topic, index)
            for _, member in self.running()
            for topic in member.topics
            for index in range(TOPICS[topic])
        )
        deadline = now() + SETTLE
        why = "nothing was looked at"
        while now() < deadline:
            why = self._missing(wanted)
            if not why:
                group = self.cluster.group(GROUP)
                shares = tuple(sorted((m.client_id, m.assignment) for m in group.members))
                self.log.add(Settled(at=now(), assignments=shares))
                return
            await anyio.sleep(0.5)
        self.log.add(NeverSettled(at=now(), why=why))
