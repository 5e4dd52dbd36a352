"""Cooperative rebalances from the caller's side, on virtual time and on a live cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import anyio
from anyio.abc import TaskGroup

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Partitions, Recorder, evict, poll_until
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

COOPERATIVE = ["cooperative-sticky"]
UPGRADING = ["cooperative-sticky", "range"]


def parts(*numbers: int, topic: str = "t") -> Partitions:
    return frozenset(TopicPartition(topic, number) for number in numbers)


@dataclass
class Member:
    """A consumer in the group "g" that a separate task polls all the time."""

    consumer: AsyncKafkaConsumer
    listener: Recorder = field(default_factory=Recorder)
    reads: list[tuple[TopicPartition, int, float]] = field(default_factory=list)
    """Partition, offset and time of each record."""
    stopping: bool = False
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def owned(self) -> Partitions:
        return frozenset(self.consumer.assignment())

    def times(self, tp: TopicPartition) -> list[float]:
        return [at for read, _, at in self.reads if read == tp]

    async def run(self, *topics: str) -> None:
        self.consumer.subscribe(topics, listener=self.listener)
        async with self.consumer:
            while not self.stopping:
                for tp, records in (await self.consumer.poll(timeout_ms=100)).items():
                    now = anyio.current_time()
                    self.reads += [(tp, record.offset, now) for record in records]
        self.gone.set()

    async def stop(self) -> None:
        self.stopping = True
        await self.gone.wait()


class World:
    """A cluster with one topic, members of one group on it, and a task that writes."""

    def __init__(self, cluster: MemoryCluster, tasks: TaskGroup, partitions: int) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.members: list[Member] = []
        self.count = 0
        """Number of records in every partition."""
        self._tasks = tasks
        self._writing = False

    def join(self, strategies: list[str], topics: tuple[str, ...] = ("t",)) -> Member:
        consumer = MemoryConsumer(
            self.cluster, seed=len(self.members), partition_assignment_strategy=strategies
        )
        self.members.append(Member(consumer))
        self._tasks.start_soon(self.members[-1].run, *topics)
        return self.members[-1]

    def shared(self, *sizes: int) -> bool:
        """True if the running members own this many partitions each."""
        there = [one for one in self.members if not one.stopping]
        together = frozenset[TopicPartition]().union(*(one.owned for one in there))
        return [len(one.owned) for one in there] == [*sizes] and len(together) == sum(sizes)

    def start_writing(self) -> None:
        self._writing = True
        self._tasks.start_soon(self._write)

    async def _write(self) -> None:
        while self._writing:
            self.cluster.produce("t", ["x"] * self.partitions)
            self.count += 1
            await anyio.sleep(0.1)

    async def all_read(self) -> None:
        """Stop writing and check that exactly one member read each record."""
        self._writing = False
        everything = self.partitions * self.count
        await until(lambda: sum(len(one.reads) for one in self.members) >= everything)
        places = sorted((tp, offset) for one in self.members for tp, offset, _ in one.reads)
        row = sorted(parts(*range(self.partitions)))
        assert places == [(tp, n) for tp in row for n in range(self.count)]


async def until(holds: Callable[[], object], timeout: float = 120.0) -> None:
    """Wait, on the virtual clock."""
    deadline = anyio.current_time() + timeout
    while not holds():
        assert anyio.current_time() < deadline
        await anyio.sleep(0.01)


def in_a_world(test: Callable[[World], Awaitable[None]], **topics: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics=topics) as cluster, anyio.create_task_group() as tasks:
            world = World(cluster, tasks, topics["t"])
            await test(world)
            for one in world.members:
                one.stopping = True

    run_virtual(main)


def test_kept_partitions_are_read_while_the_group_rebalances() -> None:
    """The third member's JoinGroup takes 5 s. The first member reads on without repeats."""

    async def test(world: World) -> None:
        world.start_writing()
        one = world.join(COOPERATIVE)
        await until(lambda: world.shared(4))
        two = world.join(COOPERATIVE)
        await until(lambda: world.shared(2, 2))
        assert one.listener.calls == [
            ("assigned", parts(0, 1, 2, 3)),
            ("revoked", parts(2, 3)),
            ("assigned", parts()),
            ("assigned", parts()),
        ]
        assert two.listener.calls == [("assigned", parts()), ("assigned", parts(2, 3))]
        world.cluster.delay("JoinGroup", 5.0, times=1)
        world.join(COOPERATIVE)
        await until(lambda: world.shared(1, 2, 1) or world.shared(2, 1, 1))
        await world.all_read()
        (kept,) = one.owned & parts(0)
        times = one.times(kept)
        assert max(b - a for a, b in pairwise(times)) < 0.5
        assert "lost" not in one.listener.names + two.listener.names

    in_a_world(test, t=4)


def test_a_rolling_upgrade_from_range_loses_and_repeats_nothing() -> None:
    async def test(world: World) -> None:
        world.start_writing()
        for sizes in ([6], [3, 3], [2, 2, 2]):
            world.join(["range"])
            await until(partial(world.shared, *sizes))
        assert world.cluster.group("g").protocol == "range"
        for strategies in (UPGRADING, COOPERATIVE):
            for one in [one for one in world.members if not one.stopping]:
                await one.stop()
                world.join(strategies)
                await until(lambda: world.shared(2, 2, 2))
        assert world.cluster.group("g").protocol == "cooperative-sticky"
        await world.all_read()
        assert all("lost" not in one.listener.names for one in world.members)

    in_a_world(test, t=6)


def test_only_unsubscribed_topics_are_revoked_before_the_join() -> None:
    async def test(world: World) -> None:
        one = world.join(COOPERATIVE, topics=("t", "u"))
        await until(lambda: len(one.owned) == 3)
        one.consumer.subscribe(["t"], listener=one.listener)
        await until(lambda: len(one.listener.calls) >= 3)
        assert one.listener.calls == [
            ("assigned", parts(0, 1) | parts(0, topic="u")),
            ("revoked", parts(0, topic="u")),
            ("assigned", parts()),
        ]
        one.consumer.subscribe(["t", "u"], listener=one.listener)
        await until(lambda: len(one.listener.calls) >= 4)
        assert one.listener.calls[3] == ("assigned", parts(0, topic="u"))

    in_a_world(test, t=2, u=1)


def test_a_member_that_is_fenced_loses_all_and_starts_anew() -> None:
    async def test(world: World) -> None:
        one = world.join(COOPERATIVE)
        await until(lambda: len(one.owned) == 2)
        world.cluster.fail("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID, times=1)
        await until(lambda: len(one.listener.calls) >= 3)
        assert one.listener.calls == [
            ("assigned", parts(0, 1)),
            ("lost", parts(0, 1)),
            ("assigned", parts(0, 1)),
        ]

    in_a_world(test, t=2)


def _member(make: MakeConsumer, topic: str, group: str) -> tuple[KafkaConsumer, Recorder]:
    listener = Recorder()
    consumer = make(group_id=group, partition_assignment_strategy="cooperative-sticky")
    consumer.subscribe([topic], listener=listener)
    return consumer, listener


def test_the_synchronous_face_gives_up_only_what_moves(
    make: MakeConsumer, cluster: Cluster, topic: str, group: str
) -> None:
    """kafka-python 3.0.12 replaces the assignment before it calls "revoked"."""
    one, listener = _member(make, topic, group)
    seen: list[Partitions] = []
    listener.hooks["revoked"] = lambda partitions: seen.append(frozenset(one.assignment()))
    everything = parts(0, 1, topic=topic)
    poll_until(one, lambda: one.assignment() == everything)
    cluster.produce(topic, [b"a", b"b"])
    poll_until(one, lambda: all(one.position(tp) == 1 for tp in everything))
    two, told_too = _member(make, topic, group)

    def shared() -> bool:
        two.poll(timeout_ms=10)
        return len(one.assignment()) == len(two.assignment()) == 1

    assert poll_until(one, shared) == []
    (stays,), (goes,) = one.assignment(), two.assignment()
    assert listener.calls[:2] == [("assigned", everything), ("revoked", frozenset({goes}))]
    assert seen == [everything]
    assert all(call == ("assigned", frozenset()) for call in listener.calls[2:])
    assert told_too.calls[-1] == ("assigned", frozenset({goes}))
    assert one.position(stays) == 1
    assert two.committed(goes) == 1, "committed before it was given up"
    evict(cluster, group)
    poll_until(one, lambda: listener.count("lost") == 1)
    assert ("lost", frozenset({stays})) in listener.calls
