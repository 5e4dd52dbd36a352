"""Classic groups with a pattern: a new topic costs one rebalance, whoever sees it first.

``test_triggers.py`` has patterns under both group protocols.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort.consumer.engine import _topics
from kohort.errors import ErrorCode, KafkaError
from kohort.protocol.messages import MetadataRequest
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.both_apis import Driven, Stage, perform
from tests.consumer.virtual import ClassicConsumer, polled
from tests.support.virtual import run_virtual

PATTERN = "a-.*"
API = pytest.mark.parametrize("api", ["sync", "async"])
STRATEGY = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
WATCHER = pytest.mark.parametrize("watcher", [0, 1], ids=["leader", "follower"])
QUICK: dict[str, Any] = {"metadata_max_age_ms": 200}
"""Options of a member that soon sees a new topic. Others see it after five minutes."""
BOUND = 1.0
"""Seconds. The longest wait for the names of new topics before a join."""
HEARTBEAT = 3.0
"""Seconds. A heartbeat response reports a rebalance to a member."""

AnyCluster = Cluster | MemoryCluster


def topics_of(member: Any) -> set[str]:
    return {tp.topic for tp in member.assignment()}


def generation(cluster: AnyCluster) -> int:
    return cluster.group("g").generation


def metadata_requests(cluster: AnyCluster, client_id: str) -> list[Any]:
    """Return the Metadata requests of a client. Those for a pattern name no topics."""
    return [
        each.message
        for each in cluster.requests
        if each.api == "Metadata" and each.client_id == client_id
    ]


def on_cluster(script: Callable[[MemoryCluster], Awaitable[None]], **topics: int) -> None:
    async def main() -> None:
        named = {name.replace("_", "-"): count for name, count in topics.items()}
        async with MemoryCluster(topics=named) as cluster:
            await script(cluster)

    run_virtual(main)


def by_pattern(
    cluster: MemoryCluster, client_id: str, pattern: str = PATTERN, **options: Any
) -> ClassicConsumer:
    consumer = ClassicConsumer(cluster, client_id=client_id, **options)
    consumer.subscribe(pattern=pattern)
    return consumer


async def stable(cluster: MemoryCluster, members: int, timeout: float = 30.0) -> None:
    def is_stable() -> bool:
        group = cluster.group("g")
        return group.is_stable and len(group.members) == members

    await cluster.wait_until(is_stable, timeout)


# --- the number of rebalances -------------------------------------------------------------------


def settled(stage: Stage, members: list[Driven], *topics: str) -> bool:
    """True if all members are stable and have a partition of each topic, which has two."""
    group = stage.cluster.group("g")
    for member in members:
        facts = member.consumer.explain().as_dict()["group"]
        if (facts["state"], facts["generation"]) != ("stable", group.generation):
            return False
        if sorted(tp.topic for tp in member.consumer.assignment()) != sorted(topics):
            return False
    return group.is_stable


async def pattern_group(stage: Stage, strategy: str, watcher: int) -> list[Driven]:
    """Return two members. Only the watcher refreshes its topics every 200 ms."""
    options: dict[str, Any] = {"partition_assignment_strategy": [strategy]}
    return [
        await stage.join(pattern=PATTERN, **options, **(QUICK if number == watcher else {}))
        for number in range(2)
    ]


async def change(
    stage: Stage, members: list[Driven], action: Callable[[], object], *topics: str
) -> list[list[str]]:
    """Change the topics, wait for the group, and return the calls of the listeners.

    Check that the group has one more generation.
    """
    before = generation(stage.cluster)
    for member in members:
        member.calls.clear()
    action()
    await stage.until(lambda: settled(stage, members, *topics), *members)
    until = stage.now() + 1
    await stage.until(lambda: stage.now() > until, *members)
    assert generation(stage.cluster) == before + 1
    return [[name for name, _ in member.calls] for member in members]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members wait longer for metadata, since the sync API runs in real time under load."""
    monkeypatch.setattr(_topics, "REFRESH_SECONDS", 20.0)


@API
@STRATEGY
@WATCHER
@pytest.mark.usefixtures("patient")
def test_new_topic_costs_one_rebalance(api: str, strategy: str, watcher: int) -> None:
    async def script(stage: Stage) -> None:
        members = await pattern_group(stage, strategy, watcher)
        await stage.until(lambda: settled(stage, members, "a-1"), *members)
        calls = await change(
            stage, members, lambda: stage.cluster.create_topic("a-2", 2), "a-1", "a-2"
        )
        expected = ["revoked", "assigned"] if strategy == "range" else ["assigned"]
        assert calls == [expected, expected]

    perform(api, script, {"a-1": 2, "b": 2})


@API
@STRATEGY
@WATCHER
@pytest.mark.usefixtures("patient")
def test_deleted_topic_costs_one_rebalance(api: str, strategy: str, watcher: int) -> None:
    async def script(stage: Stage) -> None:
        members = await pattern_group(stage, strategy, watcher)
        await stage.until(lambda: settled(stage, members, "a-1", "a-2"), *members)
        calls = await change(stage, members, lambda: stage.cluster.delete_topic("a-2"), "a-1")
        assert calls == [["revoked", "assigned"]] * 2

    perform(api, script, {"a-1": 2, "a-2": 2})


def test_unpolled_member_refreshes_before_it_is_polled() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one", rebalance_without_poll="never")
        two = by_pattern(cluster, "two", seed=6, **QUICK)
        async with one, two, polled(two):
            async with polled(one):
                await cluster.wait_until(lambda: len(two.assignment()) == 1, 30)
                await stable(cluster, 2)
            before, requests = generation(cluster), len(metadata_requests(cluster, "one"))
            cluster.create_topic("a-2", 2)
            await anyio.sleep(2 * HEARTBEAT)
            assert len(metadata_requests(cluster, "one")) == requests + 1
            assert generation(cluster) == before
            async with polled(one):
                await cluster.wait_until(lambda: len(one.assignment()) == 2, 30)
                assert topics_of(one) == topics_of(two) == {"a-1", "a-2"}
                assert generation(cluster) == before + 1

    on_cluster(script, a_1=2)


# --- requests -----------------------------------------------------------------------------------


def test_join_by_name_sends_no_metadata_request() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = ClassicConsumer(cluster, "a-1", client_id="one")
        async with one, polled(one):
            before = len(metadata_requests(cluster, "one"))
            async with ClassicConsumer(cluster, "a-1", client_id="two", seed=6) as two, polled(two):
                await stable(cluster, 2)
            await stable(cluster, 1)
            one.enforce_rebalance()
            await anyio.sleep(1)
            assert generation(cluster) == 4
            assert len(metadata_requests(cluster, "one")) == before

    on_cluster(script, a_1=2)


def test_join_by_pattern_sends_one_metadata_request() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one")
        async with one, polled(one):
            before = len(metadata_requests(cluster, "one"))
            one.enforce_rebalance()
            await cluster.wait_until(lambda: generation(cluster) == 2)
            await anyio.sleep(1)
            (request,) = metadata_requests(cluster, "one")[before:]
            assert isinstance(request, MetadataRequest)
            assert request.topics is None

    on_cluster(script, a_1=2)


@pytest.mark.parametrize("appears", [True, False])
def test_refresh_that_starts_a_rebalance_is_not_repeated(appears: bool) -> None:
    """The member's own refresh finds a topic, or the leader's finds new partitions."""

    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one", metadata_max_age_ms=5_000)
        async with one, polled(one):
            if appears:
                cluster.create_topic("a-2", 1)
            else:
                cluster.add_partitions("a-1", 3)
            before = len(metadata_requests(cluster, "one"))
            await cluster.wait_until(lambda: len(one.assignment()) == 3, 30)
            assert generation(cluster) == 2
            assert len(metadata_requests(cluster, "one")) == before + 1

    on_cluster(script, a_1=2)


# --- a refresh that fails or takes long ---------------------------------------------------------


async def join_time(cluster: MemoryCluster, consumer: ClassicConsumer) -> float:
    """Return the seconds of a rebalance that the member requests."""
    before, started = generation(cluster), anyio.current_time()
    consumer.enforce_rebalance()
    await cluster.wait_until(lambda: generation(cluster) == before + 1)
    await stable(cluster, 1)
    return anyio.current_time() - started


def test_join_waits_a_second_for_metadata_at_most() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one")
        async with one, polled(one):
            with cluster.hang("Metadata"):
                assert BOUND <= await join_time(cluster, one) < BOUND + 0.1
                cluster.create_topic("a-2", 1)
            await cluster.wait_until(lambda: topics_of(one) == {"a-1", "a-2"}, 30)

    on_cluster(script, a_1=2)


def test_join_succeeds_when_metadata_requests_fail() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one")
        errors: list[KafkaError] = []
        async with one, polled(one, errors):
            with cluster.disconnect("Metadata", times=None):
                assert await join_time(cluster, one) < BOUND + 0.1
            assert not errors
            with cluster.fail("Metadata", ErrorCode.UNKNOWN_SERVER_ERROR, times=None):
                assert await join_time(cluster, one) < BOUND + 0.1
            await cluster.wait_until(lambda: len(one.assignment()) == 2)

    on_cluster(script, a_1=2)


@pytest.mark.parametrize("closes", [True, False])
def test_leaving_is_not_delayed_by_the_refresh(closes: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with by_pattern(cluster, "one") as one:
            with cluster.hang("Metadata"):
                one.enforce_rebalance()
                await anyio.sleep(BOUND / 4)
                group = one.explain().as_dict()["group"]
                assert group is not None
                assert group["state"] == "join pending"
                started = anyio.current_time()
                await (one.close() if closes else one.unsubscribe())
                assert anyio.current_time() - started < BOUND / 2
                (left,) = [each.at for each in cluster.requests if each.api == "LeaveGroup"]
                assert left - started < 0.1

    on_cluster(script, a_1=2)


@pytest.mark.parametrize("to_pattern", [True, False])
def test_new_subscription_during_the_refresh_is_joined(to_pattern: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = by_pattern(cluster, "one")
        async with one, polled(one):
            held = cluster.delay("Metadata", BOUND / 2)
            one.enforce_rebalance()
            await anyio.sleep(BOUND / 4)
            await one.unsubscribe()
            if to_pattern:
                one.subscribe(pattern="b-.*")
            else:
                one.subscribe(["b-1"])
            await cluster.wait_until(lambda: topics_of(one) == {"b-1"}, 30)
            held.stop()
            await anyio.sleep(2 * BOUND)
            assert topics_of(one) == {"b-1"}
            await stable(cluster, 1)

    on_cluster(script, a_1=2, b_1=2)


# --- other members ------------------------------------------------------------------------------


def test_pattern_leader_assigns_topics_of_members_by_name() -> None:
    async def script(cluster: MemoryCluster) -> None:
        leader = by_pattern(cluster, "leader", metadata_max_age_ms=5_000)
        other = ClassicConsumer(cluster, "b-1", client_id="other", seed=6)
        async with leader, polled(leader), other, polled(other):
            await stable(cluster, 2)
            cluster.add_partitions("b-1", 3)
            await cluster.wait_until(lambda: len(other.assignment()) == 3, 30)
            assert topics_of(leader) == {"a-1"}

    on_cluster(script, a_1=2, b_1=2)
