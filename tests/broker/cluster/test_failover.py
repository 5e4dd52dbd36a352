"""Consumers that read while brokers stop, and while leaders and coordinators move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from kohort.testing import Cluster
from tests.interop.members import Members, shares
from tests.interop.peers import APIS, OTHERS, Settings

MAKERS = {**APIS, "confluent-kafka": OTHERS["confluent-kafka"]}
PARTITIONS = 4


@pytest.fixture
def three() -> Iterator[Cluster]:
    """A cluster of three brokers."""
    with Cluster(brokers=3, topics={"t": PARTITIONS}) as cluster:
        yield cluster


@pytest.fixture
def members() -> Iterator[Members]:
    with Members() as all_of_them:
        yield all_of_them


def join(
    members: Members,
    cluster: Cluster,
    client: str,
    count: int = 2,
    more: Mapping[str, object] | None = None,
) -> None:
    """Let members share the topic, which has a record in each partition."""
    fill(cluster)
    for number in range(count):
        settings = Settings(
            cluster.bootstrap_servers, "t", "g", f"m{number}", "range", more=dict(more or {})
        )
        members.join(MAKERS[client], settings)
    members.wait_until(shares(members.all, [PARTITIONS // count] * count))
    members.wait_until(lambda: cluster.group("g").is_stable)
    everything(members, cluster)


def fill(cluster: Cluster) -> None:
    for partition in range(PARTITIONS):
        cluster.produce("t", [b"x"], partition=partition)


def everything(members: Members, cluster: Cluster) -> None:
    """Wait until the members have read all records, and check that none is missing."""
    total = len(cluster.records("t"))
    members.wait_until(lambda: members.count() >= total)
    read = {(r.partition, r.offset) for member in members.all for r in member.reads}
    assert len(read) == total


@pytest.mark.parametrize("client", MAKERS)
def test_members_follow_leaders_that_move(three: Cluster, members: Members, client: str) -> None:
    join(members, three, client)
    before = three.group("g")
    for _ in range(2):
        for partition in range(PARTITIONS):
            three.move_leader("t", partition)
        fill(three)
        everything(members, three)
    assert members.count() == len(three.records("t")), "nothing is read twice"
    assert three.group("g") == before


@pytest.mark.parametrize("client", MAKERS)
def test_members_keep_their_assignment_if_the_coordinator_moves(
    three: Cluster, members: Members, client: str
) -> None:
    join(members, three, client)
    before = three.group("g")
    moved_to = three.move_coordinator("g")
    members.wait_until(
        lambda: sum(r.api == "Heartbeat" and r.node_id == moved_to for r in three.requests) >= 4
    )
    fill(three)
    everything(members, three)
    assert three.group("g") == before


@pytest.mark.cases(1)  # each stops three brokers
@pytest.mark.parametrize("client", MAKERS)
def test_members_survive_each_broker_in_turn(three: Cluster, members: Members, client: str) -> None:
    # librdkafka drops its last commit if its coordinator is not connected yet.
    peer = client not in APIS
    join(members, three, client, more={"auto.commit.interval.ms": 200} if peer else None)
    for node in (1, 2, 3):
        three.kill_broker(node)
        fill(three)
        everything(members, three)
        three.start_broker(node)
    members.wait_until(shares(members.all, [2, 2]))
    ends = {(p, 4) for p in range(PARTITIONS)}
    if peer:
        members.wait_until(lambda: committed(three) == ends)
    members.leave()
    assert committed(three) == ends


def committed(cluster: Cluster) -> set[tuple[int, int]]:
    """Return the partitions and the offsets that the group has committed."""
    return {(tp.partition, at.offset) for tp, at in cluster.committed("g").items()}
