"""Groups of several clients with real connections to the in-process cluster."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import anyio
import pytest

from kohort.config import ConsumerConfig
from kohort.coordinator_client import CoordinatorClient, resolve_assignors
from kohort.coordinator_client.assignors import (
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
    members_in_order,
)
from kohort.errors import CommitFailedError
from kohort.testing import Cluster
from kohort.transport import ClusterClient
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.coordinator_client.fakes import FakeHost
from tests.coordinator_client.scripts import parts
from tests.transport.running import start_client

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Event loop on the real clock, as real connections need it."""
    return str(request.param)


class Balanced(PartitionAssignor):
    """Cooperative members keep a fair share. The surplus is assigned after its owner revoked it."""

    name: ClassVar[str] = "balanced"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.COOPERATIVE})

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        every = [
            TopicPartition(topic, number)
            for topic, count in cluster.partitions.items()
            for number in range(count)
        ]
        share = -(-len(every) // len(subscriptions))
        members = members_in_order(subscriptions)
        owned = {tp for member in members for tp in subscriptions[member].owned}
        free = [tp for tp in every if tp not in owned]
        result: dict[str, list[TopicPartition]] = {}
        for member in members:
            result[member] = sorted(subscriptions[member].owned)[:share]
            while free and len(result[member]) < share:
                result[member].append(free.pop(0))
        return result


@dataclass
class Member:
    client: CoordinatorClient
    host: FakeHost
    cancel: Callable[[], None]

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.client.snapshot().owned


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"t": 6}) as cluster:
        yield cluster


class Group:
    """Members that join and leave."""

    def __init__(self, cluster: Cluster, tasks: anyio.abc.TaskGroup, assignors: Any) -> None:
        self.cluster = cluster
        self.members: list[Member] = []
        self._tasks = tasks
        self._assignors = assignors

    async def join(self, **options: Any) -> Member:
        values: dict[str, Any] = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group_id": "g",
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 6000,
            **options,
        }
        config = ConsumerConfig.from_kwargs(**values)
        rng, host = random.Random(len(self.members)), FakeHost()
        transport = ClusterClient(config.client, rng=rng)
        scope = anyio.CancelScope()
        client = CoordinatorClient(
            transport, config.group, resolve_assignors(self._assignors), host, rng=rng
        )

        async def run() -> None:
            with scope:
                async with anyio.create_task_group() as tasks:
                    await start_client(tasks, transport)
                    transport.want_topics(["t"])
                    transport.on_metadata_change(lambda _, new: client.apply_metadata(new))
                    tasks.start_soon(client.run)
                    await anyio.sleep_forever()

        self._tasks.start_soon(run)
        client.subscribe(["t"])
        member = Member(client, host, scope.cancel)
        self.members.append(member)
        return member

    async def until(self, predicate: Callable[[], object]) -> None:
        with anyio.fail_after(60):
            while True:
                if predicate():
                    return
                await anyio.sleep(0.005)

    async def settle(self, *counts: int) -> None:
        """Wait until the members own this many partitions each and share none."""

        def settled() -> bool:
            owned = [member.owned for member in self.members]
            return (
                sorted(map(len, owned)) == sorted(counts)
                and all(m.client.snapshot().state == "stable" for m in self.members)
                and len(frozenset().union(*owned)) == sum(counts)
                and len({m.client.snapshot().generation_id for m in self.members}) == 1
            )

        await self.until(settled)


@asynccontextmanager
async def group(cluster: Cluster, assignors: Any = ("range", "roundrobin")) -> AsyncIterator[Group]:
    async with anyio.create_task_group() as tasks:
        yield Group(cluster, tasks, assignors)
        tasks.cancel_scope.cancel()


async def test_members_come_share_and_go(cluster: Cluster) -> None:
    async with group(cluster) as g:
        first = await g.join()
        await g.settle(6)
        await g.join()
        await g.settle(3, 3)
        await g.join()
        await g.settle(2, 2, 2)
        await first.client.leave("done")
        assert first.owned == frozenset()
        g.members.remove(first)
        await g.settle(3, 3)
        assert first.host.names()[-1] == "revoked"


async def test_a_cooperative_group_moves_only_what_has_to_move(cluster: Cluster) -> None:
    async with group(cluster, Balanced) as g:
        first = await g.join()
        await g.settle(6)
        second = await g.join()
        await g.settle(3, 3)
        reported = [
            (name, about) for name, about in first.host.calls if name != "assignor" and about
        ]
        assert reported == [("assigned", parts(0, 1, 2, 3, 4, 5)), ("revoked", parts(3, 4, 5))]
        assert second.owned == parts(3, 4, 5)
        await first.client.leave("done")
        g.members.remove(first)
        await g.settle(6)
        assert "revoked" not in second.host.names()


async def test_a_member_that_dies_is_replaced_after_its_session(cluster: Cluster) -> None:
    async with group(cluster) as g:
        first = await g.join()
        await g.settle(6)
        await g.join()
        await g.settle(3, 3)
        first.cancel()
        g.members.remove(first)
        await g.settle(6)


async def test_a_static_member_that_restarts_costs_no_rebalance(cluster: Cluster) -> None:
    async with group(cluster) as g:
        await g.join(group_instance_id="a")
        second = await g.join(group_instance_id="b")
        await g.settle(3, 3)
        generation, owned = second.client.snapshot().generation_id, second.owned
        await second.client.leave("a restart")
        second.cancel()
        g.members.remove(second)
        again = await g.join(group_instance_id="b")
        await g.settle(3, 3)
        assert again.client.snapshot().generation_id == generation
        assert again.owned == owned


async def test_offsets_are_committed_and_found_again(cluster: Cluster) -> None:
    async with group(cluster) as g:
        first = await g.join()
        await g.settle(6)
        at = {
            TopicPartition("t", number): OffsetAndMetadata(number + 1, "m") for number in range(6)
        }
        await first.client.commit(at, 5)
        await first.client.leave("done")
        second = await g.join()
        g.members.remove(first)
        await g.settle(6)
        assert await second.client.committed(at, 5) == at
        assert cluster.committed("g").keys() == at.keys()
        with pytest.raises(CommitFailedError):
            await second.client.commit({TopicPartition("t", 6): OffsetAndMetadata(0)}, 5)
