"""``kohort topics`` on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kohort.cli import main
from kohort.errors import ErrorCode
from kohort.testing import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={"orders": 2}, auto_create_topics=False) as cluster:
        cluster.produce("orders", ["a", "b", "c"])
        yield cluster


def run(cluster: Cluster, *arguments: str) -> int:
    return main(["topics", *arguments, "--bootstrap-servers", cluster.bootstrap_servers])


def test_topics_are_listed_and_shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster) == 0
    heading, row = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["TOPIC", "PARTITIONS", "REPLICAS", "OFFSETS", "STATE"]
    assert row == ["orders", "2", "2", "3", "ok"]
    assert run(cluster, "orders") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders: ok"
    assert [line.split()[0] for line in lines[3:]] == ["0", "1"]
    assert sorted(line.split()[-1] for line in lines[3:]) == ["1", "2"]


def test_offsets_that_are_not_known_are_errors(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.fail("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    for names in ([], ["orders"]):
        assert run(cluster, *names) == 1
        shown = capsys.readouterr()
        assert "orders" in shown.out
        assert shown.err == "".join(
            f"kohort topics: looking up an offset of orders-{partition}: this client needs "
            "DESCRIBE on topic 'orders'. Grant it\n"
            for partition in (0, 1)
        )


def test_topics_are_created_and_deleted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--partitions", "3", "--replicas", "1", "--config", "retention.ms=5000"]
    assert run(cluster, "create", "flights", "trains", *options) == 0
    assert capsys.readouterr().out == "topic flights created\ntopic trains created\n"
    assert cluster.topics == {"orders": 2, "flights": 3, "trains": 3}
    assert run(cluster, "flights", "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["configs"] == {"retention.ms": "5000"}
    assert [each["replicas"] for each in found["partitions"]] != []
    assert run(cluster, "create", "flights") == 1
    assert "already exists" in capsys.readouterr().err
    assert run(cluster, "delete", "flights", "absent") == 1
    assert capsys.readouterr() == (
        "topic flights deleted\n",
        "kohort topics: topic 'absent' does not exist\n",
    )
    assert cluster.topics == {"orders": 2, "trains": 3}


def test_errors_of_newcomers_are_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "absent") == 1
    assert capsys.readouterr() == ("", "kohort topics: topic 'absent' does not exist\n")
    with pytest.raises(SystemExit) as raised:
        run(cluster, "orders", "--partitions", "3")
    assert raised.value.code == 2
    with pytest.raises(SystemExit):
        run(cluster, "create", "t", "--config", "retention")
