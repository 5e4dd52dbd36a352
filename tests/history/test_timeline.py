"""Histories against the owners that the coordinator has, and against those that clients saw."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from kohort import ConsumerRebalanceListener, TopicPartition
from kohort.broker.cluster._cluster_state import ClusterState
from kohort.broker.groups import ConsumerGroup
from kohort.history import GroupHistory
from kohort.history._records import offsets_partition
from kohort.history._timeline import CREATED, NO_CAUSE, SECOND_STEP, Timeline, partitions_text
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

Owners = dict[TopicPartition, str]
PARTITIONS = 5
MEMBERS = 4
SECONDS = 90.0


class World:
    """What a run of a group was, by the coordinator and by its clients."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = []
        """Time, key and value of the records that the coordinator stored."""
        self.owners: list[tuple[int, Owners | None]] = []
        """Owners that the coordinator has after each write of records."""
        self.seen: list[tuple[int, int, TopicPartition, str]] = []
        """From when to when a client knew that it owned a partition."""
        self.topic_names: dict[uuid.UUID, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        append: Any = ClusterState._append_group_records

        def appended(state: ClusterState, index: int, records: Any) -> None:
            append(state, index, records)
            now = state.now_ms()
            self.records += [(now, bytes(key), value) for key, value in records]
            for topic in state.topics:
                self.topic_names[uuid.UUID(bytes=bytes(topic.id))] = topic.name
            self.owners.append((now, owners_of(state)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClusterState, "_append_group_records", appended)
            yield

    def history(self) -> GroupHistory:
        timeline = Timeline("g", self.topic_names)
        for offset, (at_ms, key, value) in enumerate(self.records):
            timeline.add(offset, at_ms, key, value)
        return timeline.finish(0, self.records[-1][0])


def owners_of(state: ClusterState) -> Owners | None:
    """Return the owners in the memory of the coordinator, with what they have to give up.

    None while a classic group rebalances. The log does not have the members that have left since
    the latest generation.
    """
    group = state.group("g")
    if isinstance(group, ConsumerGroup):
        return {
            TopicPartition(topic.name, partition): member.member_id
            for member in group.members.values()
            for part in (member.assigned, member.pending_revocation)
            for topic_id, partitions in part.items()
            if (topic := group.env.topics.identified(topic_id)) is not None
            for partition in partitions
        }
    from kohort.testing._snapshots import snapshot

    found = snapshot("g", group)
    if found.state not in ("Stable", "Empty"):
        return None
    return {tp: member for member, tps in found.assignment.items() for tp in tps}


class Log(ConsumerRebalanceListener):
    """The time of each ownership, as a client sees it."""

    def __init__(self, world: World, cluster: MemoryCluster, name: str) -> None:
        self.world, self.cluster, self.name = world, cluster, name
        self.since: dict[TopicPartition, int] = {}

    def now_ms(self) -> int:
        return int(self.cluster.wall_clock() * 1000)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.since.update(dict.fromkeys(assigned, self.now_ms()))

    def on_partitions_revoked(self, revoked: Any) -> None:
        for tp in revoked:
            self.world.seen.append((self.since.pop(tp), self.now_ms(), tp, self.name))

    def on_partitions_lost(self, lost: Any) -> None:
        for tp in lost:  # others may have owned it for a while
            self.since.pop(tp, None)


def run(seed: int, protocol: str, assignor: str = "cooperative-sticky") -> World:
    """Run a group whose members come and go, cleanly or by a crash, and return what it was."""
    rng = random.Random(seed)
    world = World()
    options: Any = {"group_protocol": protocol}
    if protocol == "classic":
        options["partition_assignment_strategy"] = [assignor]

    async def live(cluster: MemoryCluster, name: str) -> None:
        await anyio.sleep(rng.uniform(0, SECONDS / 3))
        stay, crashes = rng.uniform(5, SECONDS / 2), rng.random() < 0.3
        log = Log(world, cluster, name)
        consumer = MemoryConsumer(cluster, client_id=name, seed=rng.randrange(1 << 30), **options)
        consumer.subscribe(["orders"], listener=log)
        with anyio.move_on_after(stay):
            async with consumer:
                with anyio.CancelScope() as scope:
                    deadline = anyio.current_time() + stay - 1
                    while anyio.current_time() < deadline:
                        await consumer.poll(timeout_ms=500)
                    if crashes:
                        scope.cancel()

    async def main() -> None:
        async with MemoryCluster(topics={"orders": PARTITIONS}, seed=seed) as cluster:
            cluster.produce("orders", [str(number) for number in range(50)])
            async with anyio.create_task_group() as tasks:
                for number in range(MEMBERS):
                    tasks.start_soon(live, cluster, f"worker-{number}")
                await anyio.sleep(SECONDS)
                cluster.add_partitions("orders", PARTITIONS + 1)

    with world.watching():
        run_virtual(main, seed=seed)
    return world


CASES = [
    pytest.param(seed, *kind, id=f"{'-'.join(kind)}-{seed}")
    for seed in range(125)
    for kind in (("consumer",), ("classic",), ("classic", "range"), ("classic", "sticky"))
]


@pytest.mark.parametrize("case", [case.values for case in CASES], ids=lambda case: str(case))
@pytest.mark.cases(4)
def test_owners_at_each_moment_are_those_of_coordinator_and_clients(case: Any) -> None:
    world = run(*case)
    history = world.history()
    moments = dict(world.owners)  # the last state of each millisecond
    assert len(moments) > 5
    for at_ms, owners in moments.items():
        if owners is None:
            continue
        found = {tp: member.member_id for tp, member in history.owners_at(at_ms).items()}
        assert found == owners, at_ms
    assert world.seen
    for start_ms, end_ms, tp, name in world.seen:
        if end_ms > start_ms:
            owner = history.owners_at((start_ms + end_ms) // 2).get(tp)
            assert owner is not None and owner.client_id == name
    for before, after in zip(history.spans, history.spans[1:], strict=False):
        if before.partition == after.partition:
            assert before.end_ms is not None and before.end_ms <= after.start_ms
    epochs = [each.epoch for each in history.events if each.kind == "rebalance"]
    assert epochs == sorted(set(epochs))
    assert history.unread == 0 and history.complete_since_ms == 0


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.cases(2)
def test_causes_name_the_members_that_joined_and_left(protocol: str) -> None:
    options: Any = {"group_protocol": protocol}
    if protocol == "classic":
        options["partition_assignment_strategy"] = ["cooperative-sticky"]

    async def main() -> None:
        async with MemoryCluster(topics={"orders": 2}) as cluster:
            async with MemoryConsumer(cluster, "orders", client_id="first", **options) as first:
                await first.poll(timeout_ms=20_000)
                async with MemoryConsumer(
                    cluster, "orders", client_id="second", **options
                ) as second:
                    with anyio.move_on_after(60):
                        while len(second.assignment()) != 1:
                            await first.poll(timeout_ms=500)
                            await second.poll(timeout_ms=500)
                with anyio.move_on_after(60):
                    while len(first.assignment()) != 2:
                        await first.poll(timeout_ms=500)

    world = World()
    with world.watching():
        run_virtual(main)
    history = world.history()
    causes = [each.text for each in history.events if each.kind == "rebalance"]
    others = [each for each in causes if each not in (CREATED, NO_CAUSE)]
    assert others[:2] == ["first joined", "second joined"]
    assert (others[2] == SECOND_STEP) == (protocol == "classic")
    assert causes[0] in (CREATED, "first joined")
    assert causes[-2:] == ["second left", "first left"]
    assert any(each.text.startswith("first gave up orders") for each in history.events)
    assert history.protocol == protocol


def test_hole_in_the_offsets_marks_what_is_before_as_incomplete() -> None:
    world = run(1, "classic")
    timeline = Timeline("g")
    for offset, (at_ms, key, value) in enumerate(world.records):
        timeline.add(offset + (offset > 10), at_ms, key, value)
    assert timeline.finish(0, 1).complete_since_ms == world.records[11][0]


def test_record_of_an_unknown_version_is_counted_and_passed() -> None:
    world = run(1, "classic")
    timeline = Timeline("g")
    for offset, (at_ms, key, value) in enumerate(world.records):
        broken = b"\x00\x63" + value[2:] if value and key[:2] == b"\x00\x02" else value
        timeline.add(offset, at_ms, key, broken)
    timeline.add(len(world.records), 1, b"\x00", b"")
    timeline.add(len(world.records) + 1, 1, None, b"x")
    timeline.add(len(world.records) + 2, 1, b"\x00\x02\x00\x01other", b"x")
    history = timeline.finish(0, 1)
    assert history.unread > 3
    assert history.spans == ()


@pytest.mark.parametrize(
    ("group", "partition"), [("billing", 23), ("", 0), ("shop", 34), ("größe😀", 6)]
)
@pytest.mark.cases(4)
def test_partition_of_a_group_is_that_of_the_coordinator(group: str, partition: int) -> None:
    from kohort.broker._hashes import coordinator_partition

    assert offsets_partition(group, 50) == coordinator_partition(group, 50)
    assert all(
        offsets_partition(f"{group}{number}", 50) == coordinator_partition(f"{group}{number}", 50)
        for number in range(500)
    )


def test_partitions_are_shown_as_ranges() -> None:
    tps = [TopicPartition("b", 1), *(TopicPartition("a", n) for n in (5, 0, 2, 1))]
    assert partitions_text(tps) == "a 0-2 5, b 1"
