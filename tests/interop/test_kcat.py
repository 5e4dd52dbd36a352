"""kcat on the in-process cluster, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kohort.testing import Cluster, ProducerRecord
from tests.interop.waiting import look_again_soon, wait_until
from tests.support.java_tools import RunningTool

TOPIC, PARTITIONS, RECORDS = "orders", 3, 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: PARTITIONS}) as running:
        yield running


@pytest.fixture
def command(cluster: Cluster) -> list[str]:
    """Command line that runs it on the cluster."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")
    return [program, "-b", cluster.bootstrap_servers, "-q"]


@pytest.fixture
def kcat(command: list[str]) -> Callable[..., str]:
    """Function that runs it on the cluster and returns its output."""

    def run(*args: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*command, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_kcat_writes_and_reads(cluster: Cluster, kcat: Callable[..., str]) -> None:
    lines = [f"key-{n}:order {n}" for n in range(RECORDS)]
    kcat("-P", "-t", TOPIC, "-K:", "-z", "gzip", stdin="\n".join(lines) + "\n")
    stored = {(record.key, record.value) for record in cluster.records(TOPIC)}
    assert stored == {(b"key-%d" % n, b"order %d" % n) for n in range(RECORDS)}
    read = kcat("-C", "-t", TOPIC, "-o", "beginning", "-e", "-K:")
    assert sorted(read.splitlines()) == sorted(lines)
    assert kcat("-L", "-t", TOPIC).count("leader") == PARTITIONS


def test_kcat_is_a_member_of_a_group(cluster: Cluster, kcat: Callable[..., str]) -> None:
    cluster.produce(TOPIC, ["x"] * RECORDS)
    arguments = ["-X", "auto.offset.reset=earliest", "-c", str(RECORDS), "-G", "shop", TOPIC]
    assert kcat(*arguments).split() == ["x"] * RECORDS
    committed = {place.partition: at.offset for place, at in cluster.committed("shop").items()}
    assert committed == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
def test_two_of_them_share_a_group(cluster: Cluster, command: list[str], strategy: str) -> None:
    """They are static members: the partitions of one wait for its return."""
    both: list[RunningTool] = []
    try:
        for name in ("a", "b"):
            options = f"partition.assignment.strategy={strategy}", f"group.instance.id={name}"
            more = [word for option in options for word in ("-X", option)]
            arguments = ["-u", "-X", "heartbeat.interval.ms=200", *more, "-G", "shop", TOPIC]
            both.append(RunningTool(*command, *arguments))
            sizes = [1, 2] if len(both) == 2 else [3]
            wait_until(partial(shared, cluster, sizes), feed(cluster))
        assert cluster.group("shop").protocol == strategy
        had = {m.group_instance_id: m.assignment for m in cluster.group("shop").members}
        wait_until(lambda: all(tool.lines for tool in both), feed(cluster))
        both[1].end()
        assert {m.group_instance_id: m.assignment for m in cluster.group("shop").members} == had
    finally:
        for tool in both:
            if tool.is_running:
                tool.end()


def shared(cluster: Cluster, sizes: list[int]) -> bool:
    """True if the members of the group have ``sizes`` partitions, in any order."""
    group = cluster.group("shop")
    return group.is_stable and sorted(len(m.assignment) for m in group.members) == sizes


def feed(cluster: Cluster) -> Callable[[], object]:
    """Return a function that writes a record to each partition and pauses."""

    def write() -> None:
        cluster.produce(TOPIC, ["x"] * PARTITIONS)
        look_again_soon()

    return write


def test_kcat_subscribes_by_expression(cluster: Cluster, kcat: Callable[..., str]) -> None:
    for name in ("eu-orders", "eu-stock", "us-orders"):
        cluster.produce(name, name)
    arguments = ["-X", "auto.offset.reset=earliest", "-c", "2", "-G", "shop", "^eu-.*"]
    assert sorted(kcat(*arguments).split()) == ["eu-orders", "eu-stock"]


def test_kcat_writes_and_reads_transactions(cluster: Cluster, kcat: Callable[..., str]) -> None:
    kcat("-P", "-t", TOPIC, "-X", "transactional.id=till", stdin="one\ntwo\n")
    cluster.produce(TOPIC, ["three"])
    read = ["-C", "-t", TOPIC, "-e", "-X", "isolation.level=read_committed"]
    assert sorted(kcat(*read).split()) == ["one", "three", "two"]
    assert [r.api for r in cluster.requests].count("EndTxn") == 1


def test_kcat_reads_from_a_time_on(cluster: Cluster, kcat: Callable[..., str]) -> None:
    for n in range(4):
        cluster.produce(TOPIC, [ProducerRecord(b"%d" % n, None, (), 1_700_000_000_000 + n, 1)])
    read = kcat("-C", "-t", TOPIC, "-p", "1", "-o", "s@1700000000002", "-e")
    assert read.split() == ["2", "3"]


def test_kcat_finds_offsets_by_time(cluster: Cluster, kcat: Callable[..., str]) -> None:
    (first, *_) = cluster.produce(TOPIC, ["x"] * 5, partition=1)
    moment = cluster.records(TOPIC, 1)[first.offset].timestamp
    assert kcat("-Q", "-t", f"{TOPIC}:1:{moment}").split() == [TOPIC, "[1]", "offset", "0"]
