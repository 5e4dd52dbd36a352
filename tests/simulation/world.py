"""World of one seed: a cluster, a group, and operations on both until all faults have ended."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from kohort.broker._cluster_server import ClusterServer
from kohort.testing import MemoryCluster
from kohort.types import TopicPartition
from tests.simulation.accounts import Accounts
from tests.simulation.events import (
    EventLog,
    Grown,
    Healed,
    LinesSlowed,
    NeverSettled,
    Operation,
    Processed,
    Produced,
    Recreated,
    Settled,
    Steady,
    now,
)
from tests.simulation.incarnations import by_incarnation, name_of, value_of
from tests.simulation.member import GROUP, MAX_POLL_INTERVAL, SESSION, Habits, Member
from tests.simulation.protocols import CLASSIC, Protocols

SETTLE = 3 * (SESSION + MAX_POLL_INTERVAL)
"""Seconds after the last fault within which the group must settle."""
LOOK_AGAIN = 0.5
TOPICS = {"t": 4, "u": 3}
BROKERS = (1, 2, 3)


def slot_of(name: str) -> str:
    """Return the slot of a life. Later lives of a static member keep the first one's client id."""
    return name.partition(".")[0]


class World:
    """Members and cluster, and the one random generator of the whole simulation."""

    def __init__(
        self,
        cluster: MemoryCluster,
        log: EventLog,
        rng: random.Random,
        accounts: Accounts | None = None,
        protocols: Protocols | None = None,
        racks: Mapping[str, str | None] | None = None,
        rate: int | None = None,
        round_trip: float = 0.0,
    ) -> None:
        self.cluster = cluster
        self.log = log
        self.rng = rng
        self.accounts = accounts
        """Users of the cluster. None if members do not log in."""
        self.protocols = protocols or Protocols(CLASSIC, random.Random(0))
        self.racks = racks or {}
        """Rack of the members in each slot."""
        self.rate = rate
        """Bytes per second of each connection of a member, or None for fast lines."""
        self.round_trip = round_trip
        """Seconds of a round trip between members and brokers."""
        self.backlogs: list[TopicPartition] = []
        """Partitions with records for which a slow line needs long."""
        if rate is not None:
            log.add(LinesSlowed(at=now(), rate=rate))
        self.members: dict[str, Member] = {}
        """Running members by their name without the number of their life."""
        self.by_epoch: set[str] = set()
        """Client ids of members that have sent a heartbeat of the consumer protocol."""
        self.counts = dict(TOPICS)
        """Number of partitions of each topic."""
        self.tasks: TaskGroup | None = None
        self._lives: Counter[str] = Counter()
        self._produced: Counter[TopicPartition] = Counter()
        self._numbers: Counter[str] = Counter(TOPICS.keys())
        self._ends: list[Callable[[], None]] = []

    def note(self, what: str, *, fault: bool = False, takes_time: bool = False) -> None:
        self.log.add(Operation(at=now(), what=what, fault=fault, takes_time=takes_time))

    # --- members --------------------------------------------------------------------------------

    def start(self, slot: str, habits: Habits, topics: Iterable[str]) -> Member:
        """Start a new life in a free slot, by one of the protocols of the seed."""
        return self.start_as(slot, self.protocols.habits_of(habits, slot), topics)

    def start_as(self, slot: str, habits: Habits, topics: Iterable[str]) -> Member:
        """Start a new life in a free slot, by the protocol of its habits."""
        assert self.tasks is not None
        self._lives[slot] += 1
        name = f"{slot}.{self._lives[slot]}"
        member = Member(
            name,
            self.cluster,
            self.log,
            replace(habits, rack=self.racks.get(slot)),
            frozenset(topics),
            random.Random(self.rng.random()),
            None if self.accounts is None else self.accounts.options(slot, self.cluster),
        )
        member.network.rate = self.rate
        member.network.round_trip = self.round_trip
        self.members[slot] = member
        self.tasks.start_soon(member.run)
        return member

    async def steady(self) -> None:
        """Wait until all running members are in the group, and log it."""
        await self._until_well()
        self.log.add(Steady(at=now(), generation=self.cluster.group(GROUP).generation))

    def running(self) -> list[tuple[str, Member]]:
        """Return the slots whose members run and are not about to end."""
        return [(slot, member) for slot, member in self.members.items() if member.alive]

    def free(self, slots: Iterable[str]) -> list[str]:
        """Return the slots whose members have ended or crashed."""
        taken = {
            slot
            for slot, member in self.members.items()
            if not member.crashed and not member.ended.is_set()
        }
        return [slot for slot in slots if slot not in taken]

    # --- faults ---------------------------------------------------------------------------------

    def until(self, seconds: float, end: Callable[[], None]) -> None:
        """Schedule the end of a fault: after ``seconds``, or when all faults end, if that is
        earlier.
        """

        async def wait() -> None:
            try:
                await anyio.sleep(seconds)
            finally:
                end()  # a paused core would keep the world from ending

        assert self.tasks is not None
        self._ends.append(end)
        self.tasks.start_soon(wait)

    def heal(self) -> None:
        """End all faults."""
        for end in self._ends:
            end()
        self.cluster.stop_faults()
        for node in BROKERS:
            if node not in self.cluster.live_brokers:
                self.cluster.start_broker(node)
        for member in self.members.values():
            member.relieve()

    def configure(self, name: str, value: int) -> None:
        """Set a config of the group."""

        def change(server: ClusterServer) -> None:
            configs = server.state.configs.groups
            configs.change(GROUP, configs.of(GROUP) | {name: str(value)})
            server.state.settings_changed()

        self.cluster._call(change)

    # --- records --------------------------------------------------------------------------------

    def produce(self, topic: str, partition: int, count: int, key: bytes | None = None) -> None:
        place = TopicPartition(topic, partition)
        first = self._produced[place]
        number = self._numbers[topic]
        values = [value_of(topic, number, partition, first + index) for index in range(count)]
        for value, at in zip(
            values, self.cluster.produce(topic, values, partition=partition, key=key), strict=True
        ):
            self.log.add(Produced(at=now(), partition=place, offset=at.offset, value=value))
        self._produced[place] += count

    def delete(self, topic: str) -> None:
        """Delete a topic and forget the records that were written to it."""
        self.cluster.delete_topic(topic)
        for place in [place for place in self._produced if place.topic == topic]:
            del self._produced[place]

    def create_again(self, topic: str) -> None:
        """Create a deleted topic again."""
        self.cluster.create_topic(topic, self.counts[topic])
        self._numbers[topic] += 1
        self.log.add(Recreated(at=now(), topic=topic, number=self._numbers[topic]))

    def grow(self, topic: str) -> None:
        """Add a partition to a topic."""
        self.cluster.add_partitions(topic, self.counts[topic] + 1)
        self.counts[topic] += 1
        self.log.add(Grown(at=now(), topic=topic, count=self.counts[topic]))

    # --- the end --------------------------------------------------------------------------------

    def _wanted(self) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(topic, index)
            for _, member in self.running()
            for topic in member.topics
            for index in range(self.counts[topic])
        )

    def _missing(self, partitions: frozenset[TopicPartition]) -> str:
        """Return the conditions that are still missing before the group has
        settled, "" for none.
        """
        return self._group_missing(partitions) or self._unread(partitions)

    def _group_missing(self, partitions: frozenset[TopicPartition]) -> str:
        running = self.running()
        if all(member.habits.by_hand is not None for _, member in running):
            return ""
        group = self.cluster.group(GROUP)
        if not group.is_stable:
            return f"the group is {group.state}"
        names = sorted(slot for slot, _ in running)
        in_group = sorted(slot_of(member.client_id) for member in group.members)
        if names != in_group:
            return f"{','.join(in_group)} are in the group, {','.join(names)} run"
        for slot, member in running:
            theirs = frozenset(member.consumer.assignment())
            if {place.topic for place in theirs} - set(member.topics):
                return f"{slot} has changed its subscription, and the group does not know yet"
            given = {m.assignment for m in group.members if slot_of(m.client_id) == slot}
            if given != {theirs}:
                return f"{member.name} has another assignment than the group says"
        unowned = sorted(partitions.difference(*(m.assignment for m in group.members)))
        if unowned:
            return f"nobody owns {unowned[0].topic}-{unowned[0].partition}"
        return ""

    def _unread(self, partitions: frozenset[TopicPartition]) -> str:
        processed: Counter[TopicPartition] = Counter()
        for tp, offsets in self._processed().items():
            processed[tp] = len(offsets)
        left = sorted(
            tp
            for tp in partitions
            if processed[TopicPartition(name_of(tp.topic, self._numbers[tp.topic]), tp.partition)]
            < self._produced[tp]
        )
        return f"records of {left[0].topic}-{left[0].partition} are not processed" if left else ""

    def _processed(self) -> dict[TopicPartition, set[int]]:
        found: dict[TopicPartition, set[int]] = {}
        for event in by_incarnation(self.log).of(Processed):
            found.setdefault(event.partition, set()).update(event.offsets)
        return found

    async def settle(self) -> None:
        """Wait until the group has settled. Log that, or the missing conditions."""
        self.heal()
        self.log.add(Healed(at=now()))
        why = await self._until_well()
        if why:
            self.log.add(NeverSettled(at=now(), why=why))
            return
        group = self.cluster.group(GROUP)
        shares = [(slot_of(member.client_id), member.assignment) for member in group.members]
        shares += [(s, m.habits.by_hand) for s, m in self.running() if m.habits.by_hand is not None]
        self.log.add(Settled(at=now(), assignments=tuple(sorted(shares))))

    async def _until_well(self) -> str:
        """Check the group repeatedly until it has settled. Return the conditions missing at the
        last check.
        """
        wanted, deadline = self._wanted(), now() + SETTLE
        while (why := self._missing(wanted)) and now() < deadline:
            with anyio.move_on_after(LOOK_AGAIN):
                await anyio.sleep_forever()
        return why
