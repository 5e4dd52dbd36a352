"""Groups of kohort's consumers with random faults, on virtual time, by random seed."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kohort.errors import ErrorCode
from kohort.testing import Cluster, MemoryCluster
from tests.support.virtual import run_virtual
from tests.testing.memory_consumer import MemoryConsumer

PARTITIONS = 4
PASSING = {
    "Fetch": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "JoinGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,
    "Heartbeat": ErrorCode.NOT_COORDINATOR,
    "ConsumerGroupHeartbeat": ErrorCode.NOT_COORDINATOR,
    "OffsetCommit": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "OffsetFetch": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "ListOffsets": ErrorCode.LEADER_NOT_AVAILABLE,
}


class Chaos:
    """Random events of a cluster, one after the other."""

    def __init__(self, cluster: MemoryCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.written = 0

    def produce(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            partition = self.rng.randrange(PARTITIONS)
            self.cluster.produce("t", [f"{self.written}"], partition=partition)
            self.written += 1

    def kill(self) -> None:
        live = self.cluster.live_brokers
        if len(live) > 1:
            self.cluster.kill_broker(self.rng.choice(live))

    def start(self) -> None:
        for node in {1, 2, 3} - set(self.cluster.live_brokers):
            self.cluster.start_broker(node)

    def move_leader(self) -> None:
        self.cluster.move_leader("t", self.rng.randrange(PARTITIONS))

    def move_coordinator(self) -> None:
        self.cluster.move_coordinator("g")

    def fail(self) -> None:
        api = self.rng.choice(list(PASSING))
        self.cluster.fail(api, PASSING[api], times=self.rng.randint(1, 3))

    def disconnect(self) -> None:
        self.cluster.disconnect(after=self.rng.random() < 0.5, times=self.rng.randint(1, 3))

    def step(self) -> None:
        doing = (
            self.produce,
            self.kill,
            self.start,
            self.start,
            self.move_leader,
            self.move_coordinator,
            self.fail,
            self.disconnect,
        )
        self.rng.choice(doing)()


async def life(seed: int, protocol: str) -> None:
    """Run three members, of which one joins and leaves. Check that they read every record."""
    rng = random.Random(seed)
    read: set[tuple[int, int]] = set()
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": 1000, "session_timeout_ms": 10_000}
    over = anyio.Event()
    async with MemoryCluster(
        brokers=3,
        topics={"t": PARTITIONS},
        seed=seed,
        consumer_heartbeat_interval_ms=1000,
        consumer_session_timeout_ms=10_000,
    ) as cluster:

        async def member(name: str, seconds: float) -> None:
            async with MemoryConsumer(cluster, "t", client_id=name, **options) as consumer:
                with anyio.move_on_after(seconds):
                    while not over.is_set():
                        for part in (await consumer.poll(timeout_ms=500)).values():
                            read.update((record.partition, record.offset) for record in part)

        async def visitor() -> None:
            while not over.is_set():
                await member("visitor", rng.uniform(5, 30))
                await anyio.sleep(rng.uniform(0, 10))

        chaos = Chaos(cluster, rng)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(member, "one", 1e6)
            tasks.start_soon(member, "two", 1e6)
            tasks.start_soon(visitor)
            for _ in range(60):
                chaos.step()
                owned = [p for m in cluster.group("g").members for p in m.assignment]
                assert len(owned) == len(set(owned)), "one owner for each partition"
                await anyio.sleep(rng.uniform(0, 4))
            chaos.start()
            cluster.stop_faults()
            chaos.produce()
            await cluster.wait_until(lambda: len(read) == chaos.written, timeout=300)
            assert len(cluster.records("t")) == chaos.written
            over.set()


@pytest.mark.cases(1)  # each is the life of a group
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= 2)) for seed in range(8)]
)
def test_a_group_reads_everything_whatever_happens(seed: int, protocol: str) -> None:
    run_virtual(life, seed, protocol, seed=seed)


def test_the_cluster_in_a_thread_is_the_same_cluster() -> None:
    shared = {name for name in dir(MemoryCluster) if not name.startswith("_")} - {"connect"}
    assert shared <= set(dir(Cluster))
