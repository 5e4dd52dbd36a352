"""``read_history()`` and ``kohort groups history`` on a cluster, and the lag of the past."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.cli import main
from kohort.errors import ErrorCode, GroupIdNotFoundError, TopicAuthorizationFailedError
from kohort.history import (
    GroupEvent,
    GroupHistory,
    OwnershipSpan,
    PastMember,
    read_history,
    to_html,
    to_svg,
    to_text,
)
from kohort.testing import Cluster

FIRST = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A group whose member <worker-1> came, committed and left."""
    with Cluster(topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["a", "b", "c", "d"], partition=0)
        with KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="billing",
            client_id="<worker-1>",
            enable_auto_commit=False,
        ) as consumer:
            consumer.start()
            consumer.commit({FIRST: 1})
            consumer.commit({FIRST: 3})
        yield cluster


def history(cluster: Cluster, **given: Any) -> GroupHistory:
    return read_history("billing", bootstrap_servers=cluster.bootstrap_servers, **given)


def test_history_has_members_spans_commits_and_lag(cluster: Cluster) -> None:
    found = history(cluster, moments=4)
    [member] = found.members.values()
    assert member.client_id == "<worker-1>"
    assert [each.partition.partition for each in found.spans] == [0, 1]
    assert all(each.end_ms is not None for each in found.spans)
    assert [each.offset for each in found.commits] == [1, 3]
    assert found.lags[-1][1:] == (FIRST, 1)
    causes = [each.text for each in found.events if each.kind == "rebalance"]
    assert (causes[0], causes[-1]) == ("<worker-1> joined", "<worker-1> left")


def test_past_lag_is_that_of_the_moment(cluster: Cluster) -> None:
    cluster.create_topic("late", 1)
    late = TopicPartition("late", 0)
    known: list[tuple[int, int]] = []
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="late", enable_auto_commit=False
    ) as consumer:
        consumer.assign([late])
        done = end = 0
        for step in range(12):
            if step % 3:
                end += step
                cluster.produce("late", ["x"] * step)
            else:
                done = (done + end) // 2
                consumer.commit({late: done})
            # The cluster's clock and that of this process may differ by some milliseconds.
            at_ms = int(time.time() * 1000) + 10
            cluster.wait_until(lambda at=at_ms: time.time() * 1000 > at + 10)  # type: ignore[misc]
            known.append((at_ms, end - done))
    servers = cluster.bootstrap_servers
    for at_ms, lag in known[1:]:
        moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ms // 1000))}"
        until = f"{moment}.{at_ms % 1000:03}+00:00"
        found = read_history("late", until=until, moments=1, bootstrap_servers=servers)
        assert [each.lag for each in found.lags] == [lag]


def test_time_limits_events_and_spans(cluster: Cluster) -> None:
    later = history(cluster, since="-0s")
    assert (later.events, later.spans) == ((), ())
    assert "no change in this time" in to_text(later)


def test_group_without_a_record_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(
        GroupIdNotFoundError, match="no record of a classic or consumer group 'absent'"
    ):
        read_history("absent", bootstrap_servers=cluster.bootstrap_servers)


def test_missing_right_to_read_the_offsets_is_named(cluster: Cluster) -> None:
    with cluster.fail("Metadata", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None):
        with pytest.raises(TopicAuthorizationFailedError, match="topic '__consumer_offsets'"):
            read_history("billing", bootstrap_servers=cluster.bootstrap_servers)


def test_command_writes_text_json_and_files(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = ["--bootstrap-servers", cluster.bootstrap_servers]
    files = [tmp_path / name for name in ("h.html", "h.svg", "h.arrow")]
    options = [f"--{each.suffix[1:]}={each}" for each in files]
    assert main(["groups", "history", "billing", *options, *servers]) == 0
    assert "<worker-1> has orders 0-1" in capsys.readouterr().out
    assert main(["groups", "history", "billing", "--json", *servers]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["members"]] == ["<worker-1>"]
    rows = pa.ipc.open_file(files[2].read_bytes()).read_all().to_pylist()
    assert [(row["topic"], row["partition"], row["name"]) for row in rows] == [
        ("orders", 0, "<worker-1>"),
        ("orders", 1, "<worker-1>"),
    ]
    ET.fromstring(files[1].read_text())
    assert "<!doctype html>" in files[0].read_text()


@pytest.mark.parametrize(
    ("words", "error", "status"),
    [
        (["history", "absent"], "no record of a classic or consumer group 'absent'", 1),
        (["history", "billing", "--from", "12"], "'12' is no time", 1),
        (["history", "billing", "--from", "yesterday"], "no target", 1),
    ],
)
@pytest.mark.cases(3)
def test_errors_of_newcomers_are_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: list[str], error: str, status: int
) -> None:
    assert main(["groups", *words, "--bootstrap-servers", cluster.bootstrap_servers]) == status
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert error in err


def test_options_of_a_history_need_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["groups", "billing", "--html", "h.html"])
    assert caught.value.code == 2
    assert "need `groups history G`" in capsys.readouterr().err


# -- pictures ---------------------------------------------------------------------------------


def made(partitions: int, name: str = "worker") -> GroupHistory:
    """Return a history with a change of the owner of each partition."""
    members = {each: PastMember(each, f"{name}-{each}", "host") for each in ("a", "b")}
    spans = [
        OwnershipSpan(TopicPartition("orders", number), member, start, end)
        for number in range(partitions)
        for member, start, end in (("a", 0, 400), ("b", 600, None))
    ]
    events = (GroupEvent(500, "rebalance", 2, f"{name}-b joined"),)
    return GroupHistory("g", "consumer", 0, 1000, 100, members, events, tuple(spans), ())


def test_picture_has_a_strip_for_each_span_in_its_place() -> None:
    root = ET.fromstring(to_svg(made(2)))
    space = "{http://www.w3.org/2000/svg}"
    strips = [
        (float(each.attrib["x"]), float(each.attrib["width"]))
        for each in root.iter(f"{space}rect")
        if "fill" in each.attrib
    ]
    assert strips == [(150.0, 332.0), (648.0, 332.0)] * 2
    titles = [each.text for each in root.iter(f"{space}title")]
    assert "orders-0: no owner" in titles
    assert any("compaction" in (each or "") for each in titles)


def test_large_group_has_a_picture_of_some_partitions() -> None:
    text = to_svg(made(10_000))
    assert "and 9600 more partitions" in text
    assert len(text) < 1_000_000
    ET.fromstring(text)


class Tags(HTMLParser):
    """The names of tags and the addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_page_is_alone_and_names_of_clients_cannot_change_it() -> None:
    page = to_html(made(3, "<script>alert(1)</script>\x1b&"))
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.names
    assert tags.addresses == []
    assert "\x1b" not in page
    assert "prefers-color-scheme: dark" in page
