"""``kohort top`` on a cluster."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ
from typing import Any

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, ShareConsumer, TopicPartition
from kohort.cli import main
from kohort.cli.groups._top import Look, Row, rows_of, screen
from kohort.errors import KafkaError
from kohort.protocol import ApiKey
from kohort.testing import Cluster
from tests.admin.test_old_brokers import serve
from tests.cli.test_tail import RUN

FIRST, SECOND = ORDERS = [TopicPartition("orders", number) for number in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Ten records, and three groups that have committed offsets and have no members."""
    with Cluster(topics={"orders": 2, "new": 1}) as cluster:
        for number in range(2):
            cluster.produce("orders", ["x"] * 5, partition=number)
        for name, offset in (("billing", 2), ("shipping", 5), ("audit", 0)):
            commit(cluster, name, dict.fromkeys(ORDERS, offset))
        yield cluster


def commit(cluster: Cluster, group: str, offsets: dict[TopicPartition, int]) -> None:
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.assign(list(offsets))
        consumer.commit(offsets)


def run(cluster: Cluster, *arguments: str) -> int:
    words = ["top", "--interval", "0.01", "--count", "1", *arguments]
    return main([*words, "--bootstrap-servers", cluster.bootstrap_servers])


def look(cluster: Cluster, at: float, *groups: str) -> Look:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return Look(at, dict(admin.group_lag(groups).raise_errors()), {})


def test_rates_are_what_was_committed_and_produced() -> None:
    with Cluster(topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["x"] * 10, partition=0)
        cluster.produce("orders", ["x"] * 10, partition=1)
        commit(cluster, "billing", {FIRST: 1, SECOND: 8})
        before = look(cluster, 100.0, "billing")
        commit(cluster, "billing", {FIRST: 9, SECOND: 3})  # the second one is set back
        commit(cluster, "new", {FIRST: 0})
        cluster.produce("orders", ["x"] * 12, partition=1)
        after = look(cluster, 104.0, "billing", "new")
        found = {row.group: row for row in rows_of(before, after)}
        assert (found["billing"].read, found["billing"].new) == (2.0, 3.0)
        assert (found["billing"].lag, found["billing"].members) == (20, 0)
        assert (found["new"].read, found["new"].new) == (None, None)
        assert rows_of(after, after)[0].read is None


def test_rate_of_a_share_group_counts_records_behind_an_unfinished_one() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", [b"x"] * 10)
        with ShareConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            acknowledgement="explicit",
            start="earliest",
        ) as consumer:
            first, *others = consumer.poll(timeout_ms=60_000)[FIRST]
            consumer.accept(others.pop())
            assert consumer.commit() == {}
            before = look(cluster, 100.0, "workers")
            consumer.accept(*others)
            assert consumer.commit() == {}
            (row,) = rows_of(before, look(cluster, 104.0, "workers"))
            assert (row.read, row.lag) == (2.0, 1)
            consumer.release(first)


def test_rate_of_a_share_group_follows_its_start_without_a_lag() -> None:
    with (
        Cluster(topics={"orders": 1}) as cluster,
        KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        serve(cluster, {ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0})  # as before Kafka 4.3
        cluster.produce("orders", [b"x"] * 10)
        admin.reset_group_offsets("workers", 0, topics="orders", new_type="share")
        before = look(cluster, 100.0, "workers")
        admin.reset_group_offsets("workers", 8)
        after = look(cluster, 104.0, "workers")
        (row,) = rows_of(before, after)
        assert (row.read, row.new, row.lag) == (2.0, 0.0, None)
        admin.delete_share_group_offsets("workers", "orders").raise_errors()
        (row,) = rows_of(after, look(cluster, 108.0, "workers"))
        assert row.read is None


@pytest.mark.parametrize(
    ("order", "groups"),
    [
        ([], ["audit", "billing", "shipping"]),
        (["--sort", "group"], ["audit", "billing", "shipping"]),
        (["--sort", "behind"], ["audit", "billing", "shipping"]),
        (["shipping", "billing"], ["billing", "shipping"]),
    ],
)
@pytest.mark.cases(4)
def test_groups_are_sorted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], order: list[str], groups: list[str]
) -> None:
    assert run(cluster, *order) == 0
    time, heading, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  \d groups", time)
    assert heading.split() == ["GROUP", "MEMBERS", "LAG", "BEHIND", "READ/S", "NEW/S", "STATE"]
    assert [row.split()[0] for row in rows] == groups
    assert rows[-1].split() == ["shipping", "0", "0", "0s", "0", "0", "Empty"]


def test_json_is_one_object_for_each_look(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "--json", "--count", "2", "billing", "absent") == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["time"] <= second["time"]
    groups: dict[str, Any] = {each["group"]: each for each in second["groups"]}
    assert groups["billing"] == {
        "group": "billing",
        "type": "classic",
        "state": "Empty",
        "members": 0,
        "lag": 6,
        "seconds": groups["billing"]["seconds"],
        "read_per_second": 0.0,
        "new_per_second": 0.0,
    }
    assert "does not exist" in groups["absent"]["error"]


def test_absent_groups_alone_are_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "absent", "gone") == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "kohort top: group 'absent' does not exist, or is a streams group\n")


def test_wrong_address_is_an_error_and_a_restart_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["top", "--interval", "0.01", "--count", "2", "--timeout", "5", "--bootstrap-servers"]
    assert main([*words, "127.0.0.1:1"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    with Cluster(topics={"orders": 2}) as cluster:
        commit(cluster, "billing", {FIRST: 0})
        list_groups, calls = KafkaAdminClient.list_groups, iter(range(9))

        def fail_once(admin: KafkaAdminClient, **options: Any) -> Any:
            if next(calls) == 1:
                raise KafkaError("the brokers are away")
            return list_groups(admin, **options)

        monkeypatch.setattr(KafkaAdminClient, "list_groups", fail_once)
        assert main([*words, cluster.bootstrap_servers]) == 0
        out, err = capsys.readouterr()
        assert out.count("billing") == 2
        assert err == "kohort top: the brokers are away\n"


def test_screen_is_readable_when_it_is_small() -> None:
    rows = [
        Row(f"group-with-a-long-name-{n}", "classic", "PreparingRebalance", 3, 1_234_567, 90, 1, 2)
        for n in range(30)
    ]
    wide = screen(rows, 5.0, 200, 50)
    assert len(wide) == 32
    assert wide[2].split() == [
        *["group-with-a-long-name-0", "3", "1,234,567", "1m30s", "1.0", "2.0"],
        "PreparingRebalance",
    ]
    narrow = screen(rows, 5.0, 60, 24)
    assert len(narrow) < 24 and max(map(len, narrow)) <= 60
    assert narrow[2].startswith("group-with-a") and "1,234,567" in narrow[2]
    assert narrow[3] == "    PreparingRebalance"
    assert narrow[-1] == "... 20 more"
    rows = [row._replace(lag=9, state="Stable") for row in rows[:1]]
    assert screen(rows, 5.0, 60, 24)[2].split() == [
        *["group-with-a-l~", "3", "9", "1m30s", "1.0", "2.0", "Stable"]
    ]


def test_terminal_shows_one_screen_until_interrupted(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 24, 60, 0, 0))
    words = ["top", "--interval", "0.01", "--bootstrap-servers", cluster.bootstrap_servers]
    environment = os.environ | {"TERM": "xterm", "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    environment.pop("LINES", None)
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        os.close(theirs)
        text = b""
        while text.count(b"\x1b[H") < 3:
            text += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # Linux reports the end of a terminal as an error
            while os.read(ours, 4096):
                pass
        assert process.wait(90) == 130
        assert process.stderr is not None and process.stderr.read() == b""
    os.close(ours)
    first, second, *_ = text.decode().split("\x1b[H")[1:]
    assert re.search(r"audit +0 +10 +\S+ +- +- +Empty", first)
    assert re.search(r"audit +0 +10 +\S+ +0 +0 +Empty", second)
    assert not re.search(r"\x1b\[[\d;]*m", text.decode())  # no colours
