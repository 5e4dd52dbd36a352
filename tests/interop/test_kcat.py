"""kcat, where it is installed, on the in-process cluster."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from kohort.testing import Cluster

TOPIC, PARTITIONS, RECORDS = "orders", 3, 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={TOPIC: PARTITIONS}) as running:
        yield running


@pytest.fixture
def kcat(cluster: Cluster) -> Callable[..., str]:
    """Run it on the cluster; what it printed."""
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")

    def run(*args: str, stdin: str = "") -> str:
        done = subprocess.run(
            [program, "-b", cluster.bootstrap_servers, "-q", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=40,
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


def test_kcat_finds_offsets_by_time(cluster: Cluster, kcat: Callable[..., str]) -> None:
    (first, *_) = cluster.produce(TOPIC, ["x"] * 5, partition=1)
    moment = cluster.records(TOPIC, 1)[first.offset].timestamp
    assert kcat("-Q", "-t", f"{TOPIC}:1:{moment}").split() == [TOPIC, "[1]", "offset", "0"]
