"""franz-go on the in-process cluster, in a small program (``go/main.go``)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.testing import Cluster
from tests.interop.franz import FranzMember
from tests.interop.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # the first build takes a minute or two
TOPIC, PARTITIONS = "orders", 6


@pytest.fixture
def cluster(program: str) -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={TOPIC: PARTITIONS}) as running:
        yield running


@pytest.fixture
def franz(program: str, cluster: Cluster) -> Callable[..., list[dict[str, Any]]]:
    """Function that runs one of its commands to the end and returns the events."""

    def run(command: str, **flags: object) -> list[dict[str, Any]]:
        arguments = words(cluster, flags)
        done = subprocess.run(
            [program, *arguments, command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture
def join(program: str, cluster: Cluster) -> Iterator[Callable[..., FranzMember]]:
    """Function that starts a member. Those that still run end with the test."""
    started: list[FranzMember] = []

    def start(**flags: object) -> FranzMember:
        flags = {"topic": TOPIC, "group": "shop", **flags}
        started.append(FranzMember([program, *words(cluster, flags), "consume"]))
        return started[-1]

    yield start
    for member in started:
        if member.tool.is_running:
            member.tool.kill()


def words(cluster: Cluster, flags: dict[str, object]) -> list[str]:
    named = {"bootstrap": cluster.bootstrap_servers, **flags}
    return [f"-{name.replace('_', '-')}={value}" for name, value in named.items()]


def places(each: int) -> list[tuple[int, int]]:
    return [(p, o) for p in range(PARTITIONS) for o in range(each)]


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "sticky", "range", "roundrobin"])
def test_two_members_share_a_group(
    cluster: Cluster, join: Callable[..., FranzMember], strategy: str
) -> None:
    first = join(strategy=strategy)
    wait_until(lambda: len(first.owned) == 6)
    cluster.produce(TOPIC, ["x"] * 60)
    wait_until(lambda: len(first.reads) == 60)
    second = join(strategy=strategy)
    wait_until(lambda: (len(first.owned), len(second.owned)) == (3, 3))
    assert not first.owned & second.owned
    cluster.produce(TOPIC, ["x"] * 60)
    wait_until(lambda: len(first.reads) + len(second.reads) == 120)
    first.leave()
    wait_until(lambda: len(second.owned) == 6)
    cluster.produce(TOPIC, ["x"] * 60)
    wait_until(lambda: len(first.reads) + len(second.reads) == 180)
    second.leave()
    assert sorted(first.reads + second.reads) == places(30)
    assert cluster.group("shop").state == "Empty"
    assert {at.offset for at in cluster.committed("shop").values()} == {30}


def test_a_static_member_comes_back_to_what_it_had(
    cluster: Cluster, join: Callable[..., FranzMember]
) -> None:
    stays, goes = join(instance="a"), join(instance="b")
    wait_until(lambda: (len(stays.owned), len(goes.owned)) == (3, 3))
    had = {m.group_instance_id: m.assignment for m in cluster.group("shop").members}
    generation = cluster.group("shop").generation
    goes.leave()
    back = join(instance="b")
    wait_until(lambda: len(back.owned) == 3)
    assert {m.group_instance_id: m.assignment for m in cluster.group("shop").members} == had
    assert cluster.group("shop").generation == generation


def test_a_subscription_by_expression_finds_new_topics(
    cluster: Cluster, join: Callable[..., FranzMember]
) -> None:
    for topic in ("eu-orders", "us-orders"):
        cluster.produce(topic, [topic])
    member = join(topic="^eu-", regex=True)
    wait_until(lambda: len(member.reads) == 1)
    cluster.produce("eu-stock", ["eu-stock"])
    wait_until(lambda: len(member.reads) == 2)
    member.leave()
    read = [event["value"] for event in member.events if event["event"] == "record"]
    assert read == ["eu-orders", "eu-stock"]


def test_it_produces(cluster: Cluster, franz: Callable[..., list[dict[str, Any]]]) -> None:
    franz("produce", topic=TOPIC, count=600)
    stored = {record.value for record in cluster.records(TOPIC)}
    assert stored == {b"true-%d" % n for n in range(600)}


def test_it_reads_from_a_time_on(
    cluster: Cluster, franz: Callable[..., list[dict[str, Any]]]
) -> None:
    cluster.produce(TOPIC, ["early"], partition=0)
    early = cluster.records(TOPIC, 0)[0].timestamp
    cluster.wait_until(
        lambda: cluster.produce(TOPIC, ["late"], partition=0) and now(cluster) > early
    )
    later = next(r for r in cluster.records(TOPIC, 0) if r.timestamp > early)
    (first, *_) = franz("read", topic=TOPIC, at=early + 1, count=1)
    assert (first["offset"], first["value"]) == (later.offset, "late")


def now(cluster: Cluster) -> int:
    """Return the time of the latest record."""
    return cluster.records(TOPIC, 0)[-1].timestamp


def test_an_admin_client(
    cluster: Cluster,
    franz: Callable[..., list[dict[str, Any]]],
    join: Callable[..., FranzMember],
) -> None:
    cluster.produce(TOPIC, ["x"] * 60)
    member = join()
    wait_until(lambda: len(member.reads) == 60)
    member.leave()
    events = franz("admin", topic="made", group="shop")
    (group,) = (event for event in events if event["event"] == "group")
    assert (group["state"], group["offsets"]) == ("Empty", 60)
    assert cluster.group("shop").state == "Dead"
    assert {e["name"]: e["partitions"] for e in events if e["event"] == "topic"} == {
        TOPIC: PARTITIONS,
        "made": 5,
    }
    assert "made" not in cluster.topics


def test_what_it_wrote_in_transactions_is_read_when_committed(
    cluster: Cluster, franz: Callable[..., list[dict[str, Any]]]
) -> None:
    franz("produce", topic=TOPIC, count=50, transaction="till")
    cluster.produce(TOPIC, ["end"] * PARTITIONS)
    committed = franz("read", topic=TOPIC, count=50 + PARTITIONS, isolation="read_committed")
    values = sorted(event["value"] for event in committed)
    assert values == sorted([*(f"true-{n}" for n in range(50)), *["end"] * PARTITIONS])
    everything = franz("read", topic=TOPIC, count=150 + PARTITIONS)
    assert len(everything) == 150 + PARTITIONS
