"""``kohort groups`` on a cluster."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.cli import main
from kohort.cli.common._tables import duration, render
from kohort.errors import ErrorCode
from kohort.testing import Cluster, ProducerRecord

ORDERS = [TopicPartition("orders", number) for number in range(2)]
LINES = dict[str, list[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2, "flights": 1}) as cluster:
        for number in range(2):
            cluster.produce("orders", [ProducerRecord(value="x", partition=number)] * 5)
        yield cluster


@pytest.fixture
def group(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """An empty group with the offset 3 in each partition."""
    name = re.sub(r"\W", "-", request.node.name)
    with member(cluster, name) as consumer:
        consumer.assign(ORDERS)
        consumer.commit(dict.fromkeys(ORDERS, 3))
    return name


def member(cluster: Cluster, group: str, *topics: str) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        client_id="worker-1",
        enable_auto_commit=False,
    )


def run(cluster: Cluster, *arguments: str) -> int:
    return main(["groups", *arguments, "--bootstrap-servers", cluster.bootstrap_servers])


def committed(cluster: Cluster, group: str) -> list[int]:
    return [at.offset for _, at in sorted(cluster.committed(group).items())]


def test_groups_are_listed_with_their_lag(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster) == 0
    heading, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "BEHIND"]
    [row] = [row for row in rows if row[0] == group]
    assert row[1:5] == ["classic", "Empty", "0", "4"]
    assert run(cluster, "--state", "stable") == 0
    assert group not in capsys.readouterr().out
    assert run(cluster, "--type", "share") == 0
    assert capsys.readouterr().out == "no groups\n"


def test_group_is_shown_with_owners_and_reasons(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, group) == 0
    assert "no owner: the group has no members" in capsys.readouterr().out
    with member(cluster, group, "orders") as consumer:
        consumer.start()
        consumer.commit({ORDERS[1]: 5})
        assert run(cluster, group) == 0
        out = capsys.readouterr().out
        assert re.match(rf"{group}: Stable, consumer protocol, assignor uniform", out)
        rows = {words[0]: words for words in map(str.split, out.splitlines()) if words}
        assert rows["orders:0"][1:4] == ["3", "5", "2"]
        assert rows["orders:0"][5:] == ["worker-1", "behind"]
        assert rows["orders:1"][5:] == ["worker-1", "at", "the", "end"]
        assert rows["worker-1"][2] == "2"
        assert run(cluster, group, "--during", "0.01") == 0
        assert "the owner has not committed for 0.01 s" in capsys.readouterr().out


def test_json_has_all_that_is_known(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, group, "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["group"], found["state"], found["lag"]) == (group, "Empty", 4)
    assert [each["committed"] for each in found["partitions"]] == [3, 3]
    assert found["partitions"][0]["timestamp_type"] == "CreateTime"
    assert run(cluster, "--json") == 0
    assert found["group"] in [each["group"] for each in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("limit", "status"), [("1", 4), ("2", 0), ("0.0s", 4), ("1d", 0), ("0", 4)]
)
@pytest.mark.cases(5)
def test_status_says_if_a_lag_is_above_the_limit(
    cluster: Cluster, group: str, limit: str, status: int
) -> None:
    assert run(cluster, group, "--fail-above", limit) == status


@pytest.mark.parametrize("to", ["-1h", "earliest", "-3", "orders:0=0,orders:1=0"])
@pytest.mark.cases(4)
def test_reset_shows_a_plan_then_does_it_and_prints_its_undo(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    assert run(cluster, "reset", group, "--to", to) == 0
    out = capsys.readouterr().out
    assert "3 read again" in out and "Add --execute" in out
    assert committed(cluster, group) == [3, 3]
    assert run(cluster, "reset", group, "--to", to, "--execute") == 0
    out = capsys.readouterr().out
    assert committed(cluster, group) == [0, 0]
    [undo] = re.findall(r"Undo: kohort groups (.*)", out)
    assert run(cluster, *undo.split()) == 0
    assert committed(cluster, group) == [3, 3]


def test_saved_plan_and_undo_are_carried_out(
    cluster: Cluster, group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, undo = str(tmp_path / "plan.json"), str(tmp_path / "undo.json")
    assert run(cluster, "reset", group, "--to", "latest", "--save", plan) == 0
    assert run(cluster, "reset", group, "--to", f"@{plan}", "--execute", "--save", undo) == 0
    assert committed(cluster, group) == [5, 5]
    assert f"--to @{undo} --execute" in capsys.readouterr().out
    assert run(cluster, "reset", group, "--to", f"@{plan}", "--execute") == 3
    assert "the plan has other offsets" in capsys.readouterr().err
    assert run(cluster, "reset", group, "--to", f"@{undo}", "--execute") == 0
    assert committed(cluster, group) == [3, 3]


def test_reset_whose_undo_cannot_be_saved_changes_nothing(
    cluster: Cluster, group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "missing" / "undo.json")
    assert run(cluster, "reset", group, "--to", "earliest", "--execute", "--save", file) == 1
    assert "No such file" in capsys.readouterr().err
    assert committed(cluster, group) == [3, 3]


def test_reset_of_a_new_group_has_an_undo_that_deletes(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "reset", "new", "--to", "latest", "--topic", "orders", "--execute") == 0
    [undo] = re.findall(r"Undo: kohort groups (.*)", capsys.readouterr().out)
    assert undo == "delete-offsets new --partition orders:0 --partition orders:1"
    assert run(cluster, *undo.split()) == 0
    assert committed(cluster, "new") == []


def test_reset_is_refused_while_members_live(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with member(cluster, group, "orders") as consumer:
        consumer.start()
        assert run(cluster, "reset", group, "--to", "earliest") == 0
        assert "Stop these clients first: worker-1" in capsys.readouterr().out
        assert run(cluster, "reset", group, "--to", "earliest", "--execute") == 3
        assert "client id worker-1" in capsys.readouterr().err
        assert run(cluster, "delete", group) == 3
        assert "NON_EMPTY_GROUP" in capsys.readouterr().err
    assert committed(cluster, group) == [3, 3]


def test_named_groups_are_shown_beside_the_error_of_another(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, group, "absent") == 1
    out, err = capsys.readouterr()
    assert f"{group}: Empty" in out
    assert err.startswith("kohort groups: absent: group 'absent' does not exist")
    assert run(cluster, "absent", group, "--json") == 1
    assert [each["group"] for each in json.loads(capsys.readouterr().out)] == [group]


def test_control_characters_of_names_stay_out_of_the_terminal(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "red\x1b[31m; ls"
    with member(cluster, name) as consumer:
        consumer.assign(ORDERS)
        consumer.commit(dict.fromkeys(ORDERS, 3))
    assert run(cluster) == 0
    assert run(cluster, name) == 0
    assert run(cluster, name, "absent\x1b") == 1
    assert run(cluster, "reset", name, "--to", "earliest", "--execute") == 0
    assert run(cluster, "delete-offsets", name, "--topic", "orders") == 0
    assert "\x1b" not in "".join(capsys.readouterr())


def test_undo_is_quoted_for_a_shell(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, saved = "the group; ls", str(tmp_path / "an undo.json")
    for words in (["--topic", "orders"], ["--partition", "orders:0", "--save", saved]):
        assert run(cluster, "reset", name, "--to", "latest", *words, "--execute") == 0
        undo = capsys.readouterr().out.splitlines()[-1].removeprefix("Undo: kohort groups ")
        assert run(cluster, *shlex.split(undo)) == 0
        capsys.readouterr()
        assert committed(cluster, name) == []


def test_plan_for_an_unknown_group_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "reset", "typo", "--to", "latest", "--topic", "orders") == 0
    assert "Group 'typo' does not exist" in capsys.readouterr().out


def test_groups_and_offsets_are_deleted(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "delete-offsets", group, "--topic", "orders") == 0
    assert capsys.readouterr().out == "offset orders:0 deleted\noffset orders:1 deleted\n"
    assert run(cluster, "delete-offsets", group, "--topic", "orders") == 1
    capsys.readouterr()
    assert run(cluster, "delete", group, "absent", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["deleted"][group] is None
    assert err == "kohort groups: group 'absent' does not exist, or is a streams group\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["absent"], "group 'absent' does not exist"),
        (["reset", "absent", "--to", "earliest"], "group 'absent' does not exist"),
        (
            ["reset", "absent", "--to", "earliest", "--topic", "absent"],
            "topic 'absent' does not exist",
        ),
        (["reset", "g", "--to", "2026-11-23T09:00:00"], "has no zone"),
        (["reset", "g", "--to", "yesterday"], "no target of a reset"),
        (["reset", "g", "--to", "orders:0=1", "--topic", "orders"], "leave them out"),
        (["reset", "g", "--to", "orders:0=x"], "not TOPIC:PARTITION=OFFSET"),
        (["reset", "g", "--to", "@/absent"], "No such file"),
    ],
)
@pytest.mark.cases(8)
def test_errors_of_newcomers_are_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert run(cluster, *arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kohort groups: ") and err.count("\n") == 1
    assert error in err


def test_missing_right_and_wrong_address_are_one_line(
    cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.fail("ConsumerGroupDescribe", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
        assert run(cluster, group) == 1
    err = capsys.readouterr().err
    assert "needs DESCRIBE on group" in err and err.count("\n") == 1
    assert main(["groups", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:1" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "g"],
        ["g", "--to", "earliest"],
        ["delete-offsets", "g"],
        ["reset", "a", "b", "--to", "latest"],
        ["--fail-above", "much"],
        ["delete-offsets", "g", "--partition", "orders"],
        ["reset", "g", "--to", "latest", "--type", "consumer"],
        ["configure", "g", "--config", "a=1", "--unset", "a"],
    ],
)
@pytest.mark.cases(8)
def test_wrong_arguments_are_refused(cluster: Cluster, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run(cluster, *arguments)
    assert raised.value.code == 2


def test_connection_comes_from_environment_or_file(
    cluster: Cluster,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KOHORT_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    assert main(["groups", group]) == 0
    monkeypatch.delenv("KOHORT_BOOTSTRAP_SERVERS")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={cluster.bootstrap_servers}\ngroup.id=other\n")
    monkeypatch.setenv("KOHORT_PROPERTIES", str(file))
    assert main(["groups", group]) == 0
    monkeypatch.delenv("KOHORT_PROPERTIES")
    assert main(["groups", group, "--properties", str(file)]) == 0
    assert capsys.readouterr().out.count(f"{group}: Empty") == 3


def test_table_of_a_narrow_terminal_has_its_last_column_below() -> None:
    rows: Any = [["orders:0", "12", "a rather long reason"], ["flights:10", "3", "short"]]
    assert render(["PARTITION", "LAG", "REASON"], rows, None).splitlines() == [
        "PARTITION   LAG  REASON",
        "orders:0     12  a rather long reason",
        "flights:10    3  short",
    ]
    assert render(["PARTITION", "LAG", "REASON"], rows, 24).splitlines() == [
        "PARTITION   LAG",
        "orders:0     12",
        "    a rather long reason",
        "flights:10    3",
        "    short",
    ]


def test_table_of_a_narrow_terminal_has_long_names_apart() -> None:
    rows: Any = [["a-topic-of-many-words", "12", "ok"], ["flights", "3", "ok"]]
    assert render(["TOPIC", "OFFSETS", "STATE"], rows, 24).splitlines() == [
        "TOPIC",
        "  OFFSETS  STATE",
        "a-topic-of-many-words",
        "       12  ok",
        "flights",
        "        3  ok",
    ]
    rows = [["a-topic-of-many-words", "12", "without leaders"]]
    assert render(["TOPIC", "OFFSETS", "STATE"], rows, 24).splitlines() == [
        "TOPIC",
        "  OFFSETS",
        "a-topic-of-many-words",
        "       12",
        "    without leaders",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0s"),
        (3.21, "3.2s"),
        (45.4, "45s"),
        (250, "4m10s"),
        (7_500, "2h05m"),
        (183_600, "2d03h"),
    ],
)
@pytest.mark.cases(7)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
