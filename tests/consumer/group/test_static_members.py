"""Static members of KIP-345: restarts without a rebalance, and fencing of the older member."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import CommitFailedError, ErrorCode, FencedInstanceIdError
from kohort.testing import MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    HEARTBEATS,
    MemoryConsumer,
    poll_for,
    polled,
    values,
)
from tests.support.virtual import run_virtual


def _member(cluster: MemoryCluster, name: str, **more: Any) -> MemoryConsumer:
    return MemoryConsumer(cluster, "t", client_id=name, group_instance_id=name, **more)


def _classic(cluster: MemoryCluster, name: str, **more: Any) -> MemoryConsumer:
    return _member(cluster, name, group_protocol="classic", **more)


@pytest.mark.parametrize("restarts", ["leader", "follower"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_restart_in_session_keeps_partitions_without_rebalance(
    restarts: str, strategy: str
) -> None:
    async def main() -> None:
        options = {"partition_assignment_strategy": [strategy]}
        async with MemoryCluster(topics={"t": 4}) as cluster:
            two = _classic(cluster, "two", **options)
            one = _classic(cluster, "one", **options)
            listener = Recorder()
            two.subscribe(["t"], listener=listener)
            async with one, polled(one), two, polled(two):
                await cluster.wait_until(lambda: _settled(cluster, 2))
                group = cluster.group("g")
                stays, goes = (two, one) if restarts == "leader" else (one, two)
                ids = {m.client_id: m.member_id for m in group.members}
                assert group.leader == ids["one"], "who leads is decided by the order of joining"
            # Both have stopped, and the group keeps both members.
            assert len(cluster.group("g").members) == 2
            name = goes._driver.config.client.client_id
            before = cluster.group("g")
            calls = len(listener.calls)
            stays = _classic(cluster, stays._driver.config.client.client_id, **options)
            async with stays, polled(stays):
                for _ in range(3):
                    again = _classic(cluster, name, **options)
                    async with again, polled(again):
                        assert len(again.assignment()) == len(stays.assignment()) == 2
                        await anyio.sleep(4)
                after = cluster.group("g")
                assert after.generation == before.generation, "not one rebalance"
                assert sorted(map(sorted, after.assignment.values())) == sorted(
                    map(sorted, before.assignment.values())
                )
            assert len(listener.calls) == calls

    run_virtual(main)


def test_returning_static_leader_watches_topics_and_assigns_none() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            one = _classic(cluster, "one")
            async with one, polled(one):
                await cluster.wait_until(lambda: _settled(cluster, 1))
            again = _classic(cluster, "one", metadata_max_age_ms=1_000)
            async with again, polled(again):
                assert again.group_metadata().generation_id == 1
                assert len(again.assignment()) == 2
                cluster.add_partitions("t", 5)
                await cluster.wait_until(lambda: cluster.group("g").generation == 2, 30)
                await cluster.wait_until(lambda: len(again.assignment()) == 5)

    run_virtual(main)


@EACH_PROTOCOL
@pytest.mark.parametrize("count", [1, 3])
def test_restart_within_the_session_keeps_the_partitions(count: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}) as cluster:
            one = _member(cluster, "one")
            async with one, polled(one):
                two = _member(cluster, "two")
                async with two, polled(two):
                    await cluster.wait_until(lambda: _settled(cluster, 2), 30)
                before = cluster.group("g")
                for _ in range(count):
                    again = _member(cluster, "two")
                    async with again, polled(again):
                        await anyio.sleep(4)
                        assert len(one.assignment()) == len(again.assignment()) == 2
                    after = cluster.group("g")
                    assert after.generation == before.generation
                    assert sorted(map(sorted, after.assignment.values())) == sorted(
                        map(sorted, before.assignment.values())
                    )

    run_virtual(main)


def test_returning_static_leader_finds_added_partitions() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            one = _classic(cluster, "one")
            async with one, polled(one):
                await cluster.wait_until(lambda: _settled(cluster, 1))
            cluster.add_partitions("t", 5)
            again = _classic(cluster, "one")
            async with again, polled(again):
                await cluster.wait_until(lambda: len(again.assignment()) == 5)
                assert cluster.group("g").generation == 2

    run_virtual(main)


def test_a_member_finds_new_partitions_after_a_static_downgrade() -> None:
    """No member knows that it leads, because the upgraded group named no leader."""

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            new = _member(cluster, "one", group_protocol="consumer")
            async with new, polled(new):
                await cluster.wait_until(lambda: len(new.assignment()) == 2)
            old = _classic(cluster, "one", metadata_max_age_ms=1_000)
            async with old, polled(old):
                await cluster.wait_until(lambda: len(old.assignment()) == 2)
                generation = cluster.group("g").generation
                cluster.add_partitions("t", 5)
                await cluster.wait_until(lambda: len(old.assignment()) == 5, 30)
                assert cluster.group("g").generation == generation + 1

    run_virtual(main)


@pytest.mark.cases(3)  # each restarts members
@EACH_PROTOCOL
@pytest.mark.parametrize("topics", [["u"], ["t", "u"]], ids=["other", "more"])
@pytest.mark.parametrize("returns", ["one", "two"])
def test_restarted_member_gets_topics_that_it_did_not_have(returns: str, topics: list[str]) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2, "u": 2}) as cluster:
            one, two = _member(cluster, "one"), _member(cluster, "two")
            async with one, polled(one):
                async with two, polled(two):
                    await cluster.wait_until(lambda: _settled(cluster, 2), 30)
            stays = _member(cluster, "two" if returns == "one" else "one")
            again = _member(cluster, returns)
            again.subscribe(topics)
            async with stays, polled(stays), again, polled(again):
                wanted = {TopicPartition("u", 0), TopicPartition("u", 1)}
                await cluster.wait_until(lambda: wanted <= again.assignment(), 30)
                generation = cluster.group("g").generation
                await anyio.sleep(60)
                assert cluster.group("g").generation - generation <= 1, "no rejoin without end"

    run_virtual(main)


@EACH_PROTOCOL
def test_after_the_session_a_static_member_has_left() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with _member(cluster, "one"):
                pass
            two = _member(cluster, "two")
            begun = anyio.current_time()
            async with two, polled(two):
                await cluster.wait_until(lambda: len(two.assignment()) == 2, 100)
                assert 40 < anyio.current_time() - begun < 60

    run_virtual(main)


def test_older_of_two_members_with_one_instance_id_is_fenced() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a", "b"])
            older, younger = _classic(cluster, "one"), _classic(cluster, "one")
            listener = Recorder()
            older.subscribe(["t"], listener=listener)
            async with older:
                await values(older, 2)
                async with younger, polled(younger):
                    errors = await poll_for(older, lambda: "lost" in listener.names)
                    errors += await poll_for(older, lambda: errors)
                    (error,) = errors
                    assert isinstance(error, FencedInstanceIdError)
                    assert "group_instance_id" in str(error)
                    assert not error.retriable
                    assert older.assignment() == set()
                    with pytest.raises(CommitFailedError):
                        await older.commit({TopicPartition("t", 0): 1})
                    with anyio.move_on_after(30):
                        assert await poll_for(older, lambda: False, 1000) == []
                    assert len(cluster.group("g").members) == 1
                    assert len(younger.assignment()) == 2
                    await older.close()
                    assert len(cluster.group("g").members) == 1, "it leaves nobody's place"

    run_virtual(main)


def _settled(cluster: MemoryCluster, members: int) -> bool:
    group = cluster.group("g")
    shares = [len(member.assignment) for member in group.members]
    return group.is_stable and len(shares) == members and min(shares) == max(shares) > 0


def test_fenced_member_rejoins_by_subscribing_to_the_same_topics(
    each_protocol: str,
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with _member(cluster, "one") as consumer:
                with cluster.fail(HEARTBEATS[each_protocol], ErrorCode.FENCED_INSTANCE_ID):
                    errors = await poll_for(consumer, lambda: not consumer.assignment())
                    errors += await poll_for(consumer, lambda: errors)
                assert isinstance(errors[0], FencedInstanceIdError)
                consumer.subscribe(["t"])
                await poll_for(consumer, lambda: len(consumer.assignment()) == 2)

    run_virtual(main)
