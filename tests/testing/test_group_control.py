"""``rebalance()``, ``evict()`` and ``assign()``, on a virtual clock and on ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import IllegalStateError, InvalidOptionError, UnknownMemberIdError
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer
from tests.support.virtual import run_virtual

ASSIGNORS = pytest.mark.parametrize(
    ("protocol", "assignor"),
    [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", None)],
)


class Log:
    """What a listener was called with, in its order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(tp.partition for tp in revoked)))

    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(tp.partition for tp in lost)))


@asynccontextmanager
async def members(
    cluster: MemoryCluster, protocol: str, assignor: str | None, names: str = "ab"
) -> AsyncIterator[dict[str, Log]]:
    """Run members that poll, with their client ids and listeners."""
    options: Any = {} if assignor is None else {"partition_assignment_strategy": [assignor]}
    logs = {name: Log() for name in names}
    stop = anyio.Event()

    async def poll(name: str) -> None:
        async with MemoryConsumer(
            cluster, client_id=name, group_protocol=protocol, **options
        ) as consumer:
            consumer.subscribe(["t"], listener=logs[name])
            while not stop.is_set():
                await consumer.poll(timeout_ms=100)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(poll, name)
        await settled(cluster, logs)
        yield logs
        stop.set()


async def settled(cluster: MemoryCluster, logs: dict[str, Log]) -> None:
    """Wait until the group is stable, and all listeners have been called."""
    await cluster.wait_for_group("g", members=len(logs), timeout=120)
    await cluster.wait_until(
        lambda: {name: held(log) for name, log in logs.items()} == owned(cluster), timeout=120
    )


def owned(cluster: MemoryCluster | Cluster) -> dict[str, list[int]]:
    return {
        member.client_id: sorted(tp.partition for tp in member.assignment)
        for member in cluster.group("g").members
    }


@ASSIGNORS
@pytest.mark.cases(3)
def test_assign_gives_exactly_the_wanted_partitions(protocol: str, assignor: str | None) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 4}) as cluster,
            members(cluster, protocol, assignor) as logs,
        ):
            for wanted in (
                {"a": [0, 1, 2, 3], "b": []},
                {"a": [1], "b": [0, 3]},  # the partition 2 has no owner
                {"a": [0, 2, 3], "b": [1]},
            ):
                cluster.assign("g", {n: [("t", p) for p in ps] for n, ps in wanted.items() if ps})
                await settled(cluster, logs)
                assert owned(cluster) == wanted
            assert not any(name == "lost" for log in logs.values() for name, _ in log.calls)
            cluster.rebalance("g")
            if protocol == "classic" and assignor == "range":
                await cluster.wait_for_group("g", members=2, timeout=120)
                assert sorted(map(len, owned(cluster).values())) == [2, 2]

    run_virtual(main)


def held(log: Log) -> list[int]:
    """Return the partitions that a member has after all calls of its listener."""
    partitions: set[int] = set()
    for name, changed in log.calls:
        partitions = partitions | set(changed) if name == "assigned" else partitions - set(changed)
    return sorted(partitions)


@ASSIGNORS
@pytest.mark.cases(3)
def test_rebalance_begins_a_generation_or_epoch(protocol: str, assignor: str | None) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 4}) as cluster,
            members(cluster, protocol, assignor) as logs,
        ):
            before, calls = cluster.group("g"), len(logs["a"].calls)
            cluster.rebalance("g")
            assert not cluster.group("g").is_stable
            after = await cluster.wait_for_group("g", members=2, timeout=120)
            await settled(cluster, logs)
            assert after.generation > before.generation
            assert after.assignment == before.assignment
            gave_up = any(name == "revoked" and each for name, each in logs["a"].calls[calls:])
            assert gave_up == (assignor == "range")  # an eager member gives up all partitions

    run_virtual(main)


@PROTOCOLS
@pytest.mark.cases(2)
def test_evicted_member_loses_its_partitions_and_returns(protocol: str) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 4}) as cluster,
            members(cluster, protocol, None) as logs,
        ):
            ids = {each.client_id: each.member_id for each in cluster.group("g").members}
            assert cluster.evict("g", "a") == ids["a"]
            assert set(owned(cluster)) == {"b"}
            lost = held(logs["a"])
            await cluster.wait_until(lambda: ("lost", lost) in logs["a"].calls, timeout=120)
            await settled(cluster, logs)
            assert sorted(map(len, owned(cluster).values())) == [2, 2]
            with pytest.raises(UnknownMemberIdError, match=r"no member 'c'. Its clients are a, b"):
                cluster.evict("g", "c")

    run_virtual(main)


@PROTOCOLS
@pytest.mark.cases(2)
def test_assignments_that_cannot_be_are_refused(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2, "other": 1}) as cluster:
            with pytest.raises(IllegalStateError, match="group 'g' has no members"):
                cluster.rebalance("g")
            with pytest.raises(IllegalStateError, match="group 'g' has no members"):
                cluster.assign("g", {})
            async with members(cluster, protocol, None):
                generation = cluster.group("g").generation
                wrong: list[tuple[dict[str, list[tuple[str, int]]], str]] = [
                    ({"a": [("t", 0)], "b": [("t", 0)]}, "t-0 has two members"),
                    ({"a": [("other", 0)]}, "'a' does not subscribe to 'other', but to t"),
                ]
                for assignment, message in wrong:
                    with pytest.raises(InvalidOptionError, match=message):
                        cluster.assign("g", assignment)
                assert cluster.group("g").generation == generation

    run_virtual(main)


def test_static_member_is_named_by_its_instance() -> None:
    with (
        Cluster(topics={"t": 2}) as cluster,
        static_member(cluster, "one") as first,
        static_member(cluster, "two") as second,
    ):

        def has(*partitions: set[int]) -> bool:
            found = []
            for consumer in (first, second):
                consumer.poll(timeout_ms=10)
                found.append({tp.partition for tp in consumer.assignment()})
            return len(cluster.group("g").members) == 2 and found == list(partitions)

        cluster.wait_until(lambda: has({0}, {1}) or has({1}, {0}), 90)
        with pytest.raises(UnknownMemberIdError, match="has 2 members 'a'"):
            cluster.evict("g", "a")
        cluster.assign("g", {"one": [("t", 0)], "two": [("t", 1)]})
        cluster.wait_until(lambda: has({0}, {1}), 90)
        cluster.assign("g", {"one": [("t", 1)], "two": [("t", 0)]})
        cluster.wait_until(lambda: has({1}, {0}), 90)


def static_member(cluster: Cluster, name: str) -> KafkaConsumer:
    return KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        client_id="a",
        group_instance_id=name,
    )
