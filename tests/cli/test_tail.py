"""``kohort tail`` on a cluster."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kohort.cli import main
from kohort.testing import Cluster, ProducerRecord

MINUTE_MS = 60_000
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A record for each of the last 20 minutes, in two partitions by turns."""
    with Cluster(topics={"orders": 2, "odd": 1, "empty": 1}) as cluster:
        for minute in range(20, 0, -1):
            record = ProducerRecord(
                value=f"v{minute}",
                key=f"k{minute}",
                partition=minute % 2,
                timestamp=NOW_MS - minute * MINUTE_MS,
            )
            cluster.produce("orders", [record])
        odd = ProducerRecord(value=b"\xff\x1b[2J", key=None, headers=[("h", b"1")], timestamp=0)
        cluster.produce("odd", [odd, ProducerRecord(value=None, key="gone", timestamp=0)])
        yield cluster


def run(cluster: Cluster, *arguments: str) -> int:
    return main(["tail", *arguments, "--bootstrap-servers", cluster.bootstrap_servers])


@pytest.mark.parametrize(
    ("arguments", "minutes"),
    [
        ([], range(10, 0, -1)),
        (["-n", "3"], [3, 2, 1]),
        (["-n", "99"], range(20, 0, -1)),
        (["--from", "-5m"], [4, 3, 2, 1]),
        (["--from", "-5m", "--until", "-3m"], [4, 3]),
        (["--from", "earliest", "-n", "2", "--partition", "1"], [19, 17]),
        (["--from", "8", "--partition", "0"], [4, 2]),
        (["--until", "-15m", "-n", "2"], [16, 15]),
        (["--from", "latest"], []),
    ],
)
@pytest.mark.cases(9)
def test_records_of_a_range_are_printed_by_their_time(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    minutes: list[int],
) -> None:
    # The test may run a while after the records were written. So a place is half a minute after
    # that of a record, as of then.
    late = (time.time() * 1000 - NOW_MS) / 1000
    moved = [
        f"-{int(match[1]) * 60 - 30 + round(late)}s"
        if (match := re.fullmatch(r"-(\d+)m", word))
        else word
        for word in arguments
    ]
    assert run(cluster, "orders", "--format", "%k=%v", *moved) == 0
    assert capsys.readouterr().out.split() == [f"k{each}=v{each}" for each in minutes]


def test_line_has_time_place_key_and_value(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "odd") == 0
    assert capsys.readouterr().out.splitlines() == [
        r"1970-01-01T00:00:00.000Z 0:0 - \xff\x1b[2J",
        "1970-01-01T00:00:00.000Z 0:1 gone -",
    ]
    assert run(cluster, "odd", "-n", "1", "--from", "0", "--format", "%t[%p]@%o %s %h %%") == 0
    assert capsys.readouterr().out == "odd[0]@0 0 h=1 %\n"


def test_json_keeps_bytes_and_null(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, "odd", "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["value"] == {"base64": "/xtbMko="}
    assert (first["key"], first["headers"], first["offset"]) == (None, [["h", "1"]], 0)
    assert (second["key"], second["value"]) == ("gone", None)


def test_tail_of_an_empty_topic_prints_nothing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "empty") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["absent"], "topic 'absent' does not exist"),
        (["orders", "--from", "yesterday"], "no target"),
        (["orders", "--partition", "7"], "topic 'orders' has no partition 7"),
    ],
)
@pytest.mark.cases(3)
def test_errors_of_newcomers_are_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert run(cluster, *arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert error in err


RUN = """
import signal, sys
from kohort.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
sys.exit(main())
"""


def test_follow_prints_new_records_until_interrupted(cluster: Cluster) -> None:
    cluster.create_topic("live", 1)
    cluster.produce("live", ["old"])
    words = ["tail", "live", "-f", "--format", "%v", "--bootstrap-servers"]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *words, cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "old\n"
        cluster.produce("live", ["new"])
        assert process.stdout.readline() == "new\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130
        assert process.stderr.read() == ""
