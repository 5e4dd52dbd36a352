"""``kohort groups`` for share groups, and the settings of groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import KafkaAdminClient, ShareConsumer, TopicPartition
from kohort.cli import main
from kohort.testing import Cluster
from tests.cli.test_groups import run

JOBS = TopicPartition("jobs", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster whose share group has accepted two of five records."""
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", [f"{number}" for number in range(5)])
        with worker(cluster) as consumer:
            accepted = 0
            while accepted < 2:
                for records in consumer.poll(timeout_ms=1_000).values():
                    consumer.accept(*records)
                    accepted += len(records)
            assert consumer.commit() == {}
            cluster.produce("jobs", ["x"])  # its poll stores that the others are done
        yield cluster


def worker(cluster: Cluster) -> ShareConsumer:
    return ShareConsumer(
        "jobs",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="workers",
        client_id="worker-1",
        acknowledgement="explicit",
        acquire_mode="record_limit",
        max_poll_records=2,
        start="earliest",
    )


def start_of(cluster: Cluster) -> int | None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_share_group_offsets("workers")["workers"]
        return found[JOBS].start if JOBS in found else None


def test_share_group_is_listed_and_shown(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster) == 0
    [row] = capsys.readouterr().out.splitlines()[1:]
    assert row.split() == ["workers", "share", "Empty", "0", "4", "-"]
    with worker(cluster) as consumer:
        while not consumer.poll(timeout_ms=1_000):
            pass
        assert run(cluster, "workers") == 0
    shown = capsys.readouterr().out
    assert "workers: Stable, share protocol" in shown
    assert "worker-1" in shown
    headings, partition = shown.splitlines()[-2:]
    assert headings.split() == ["PARTITION", "START", "END", "LAG", "BEHIND", "REASON"]
    assert partition.split() == ["jobs:0", "0", "6", "4", "-", "behind"]


def test_lag_of_a_group_without_a_start_is_unknown(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with ShareConsumer(
        "jobs", bootstrap_servers=cluster.bootstrap_servers, group_id="fresh"
    ) as consumer:
        cluster.wait_until(lambda: consumer.poll(timeout_ms=10) or consumer.assignment())
        assert run(cluster, "fresh") == 0
        title, *_, partition = capsys.readouterr().out.splitlines()
        assert ", lag -, behind -" in title
        assert partition.split()[:5] == ["jobs:0", "-", "6", "-", "-"]
        assert run(cluster, "fresh", "--json") == 0
        [group] = json.loads(capsys.readouterr().out)
        assert group["lag"] is None
        assert run(cluster, "fresh", "--fail-above", "1") == 1
        assert capsys.readouterr().err == (
            "kohort groups: fresh: the lag is unknown: no member has acknowledged a record yet\n"
        )
        assert run(cluster, "fresh", "--fail-above", "1s") == 1
        assert "fresh: the age of its records is unknown" in capsys.readouterr().err


def test_empty_partition_has_no_lag_before_its_first_record(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("empty", 1)
    with ShareConsumer(
        "empty", bootstrap_servers=cluster.bootstrap_servers, group_id="fresh"
    ) as consumer:
        cluster.wait_until(lambda: consumer.poll(timeout_ms=10) or consumer.assignment())
        assert run(cluster, "fresh", "--fail-above", "1") == 0
        row = capsys.readouterr().out.splitlines()[-1]
        assert row.split() == ["empty:0", "-", "0", "0", "0s", "at", "the", "end"]


def test_unknown_age_is_no_failure_and_is_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "--fail-above", "1s") == 0
    assert "workers: the age of 4 records is unknown" in capsys.readouterr().err
    assert run(cluster, "--fail-above", "3") == 4
    assert run(cluster, "--fail-above", "4") == 0
    assert capsys.readouterr().err == ""


def test_top_shows_share_groups_with_those_that_commit(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["top", "--interval", "0.01", "--count", "1", "--json", "--bootstrap-servers"]
    assert main([*words, cluster.bootstrap_servers]) == 0
    [found] = json.loads(capsys.readouterr().out)["groups"]
    assert (found["group"], found["type"], found["lag"]) == ("workers", "share", 4)
    assert (found["seconds"], found["read_per_second"]) == (None, 0.0)


def test_reset_of_a_share_group_has_a_plan_and_a_way_back(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "reset", "workers", "--to", "4") == 0
    assert "This is a plan" in capsys.readouterr().out
    assert start_of(cluster) == 0
    saved = str(tmp_path / "undo.json")
    assert run(cluster, "reset", "workers", "--to", "4", "--execute", "--save", saved) == 0
    assert start_of(cluster) == 4
    assert "Undo: kohort groups reset workers --to @" in capsys.readouterr().out
    assert run(cluster, "reset", "workers", "--to", f"@{saved}", "--execute") == 0
    assert start_of(cluster) == 0
    undo = capsys.readouterr().out.splitlines()[-1].partition("kohort groups ")[2].split()
    assert run(cluster, *undo) == 0
    assert start_of(cluster) == 4
    with worker(cluster) as consumer:
        consumer.poll(timeout_ms=20_000)
        assert run(cluster, "reset", "workers", "--to", "earliest", "--execute") == 3


def test_deleted_starts_have_a_way_back(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "reset", "workers", "--to", "3", "--execute") == 0
    assert run(cluster, "delete-offsets", "workers", "--partition", "jobs:0") == 1
    assert "Use --topic" in capsys.readouterr().err
    assert run(cluster, "delete-offsets", "workers", "--topic", "jobs") == 0
    assert start_of(cluster) is None
    undo = capsys.readouterr().out.splitlines()[-1].partition("kohort groups ")[2].split()
    assert run(cluster, *undo) == 0
    assert start_of(cluster) == 3
    capsys.readouterr()
    assert run(cluster, "delete-offsets", "workers", "--topic", "jobs", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"deleted": {"jobs": None}, "before": {"jobs:0": 3}}
    assert run(cluster, "delete-offsets", "workers", "--topic", "nothing") == 1
    assert "nothing" in capsys.readouterr().err


def test_new_starts_have_a_way_back(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("more", 1)
    assert run(cluster, "reset", "workers", "--to", "more:0=0,jobs:0=2", "--execute") == 0
    *_, deletion, reset = capsys.readouterr().out.splitlines()
    for undo in (deletion, reset):
        assert run(cluster, *undo.partition("kohort groups ")[2].split()) == 0
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_share_group_offsets("workers")["workers"]
    assert {tp: at.start for tp, at in found.items()} == {JOBS: 0}


def test_undo_after_a_deletion_makes_a_share_group(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for action, *words in (
        ("reset", "--to", "4", "--execute"),
        ("delete-offsets", "--topic", "jobs"),
    ):
        assert run(cluster, action, "workers", *words) == 0
        undo = capsys.readouterr().out.splitlines()[-1].partition("kohort groups ")[2].split()
        assert run(cluster, "delete", "workers") == 0
        assert run(cluster, *undo) == 0
        assert cluster.group("workers").type == "share"
        capsys.readouterr()


def test_starts_of_a_new_share_group_have_a_plan_and_a_way_back(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reset", "new", "--to", "3", "--topic", "jobs"]
    assert run(cluster, *words) == 0
    assert "--type share --execute as a share group" in capsys.readouterr().out
    assert run(cluster, *words, "--type", "share") == 0
    assert "does not exist" not in capsys.readouterr().out
    assert run(cluster, *words, "--type", "share", "--execute") == 0
    assert cluster.group("new").type == "share"
    undo = capsys.readouterr().out.splitlines()[-1].partition("kohort groups ")[2].split()
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.list_share_group_offsets("new")["new"][JOBS].start == 3
        assert run(cluster, *undo) == 0
        assert dict(admin.list_share_group_offsets("new")["new"]) == {}
        admin.alter_group_offsets("old", {JOBS: 1}).raise_errors()
    assert run(cluster, "reset", "old", "--to", "0", "--type", "share") == 1
    assert "group 'old' is of the type classic" in capsys.readouterr().err


def test_delete_is_refused_while_members_live(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with worker(cluster) as consumer:
        consumer.poll(timeout_ms=20_000)
        assert run(cluster, "delete", "workers") == 3
        assert run(cluster, "delete-offsets", "workers", "--topic", "jobs") == 3
        assert capsys.readouterr().err.count("NON_EMPTY_GROUP") == 2
    assert run(cluster, "delete", "workers") == 0


def test_settings_of_a_group_are_shown_and_changed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = "share.delivery.count.limit"
    assert run(cluster, "configure", "new", "--config", f"{limit}=3") == 0
    shown = capsys.readouterr().out
    assert f"Undo: kohort groups configure new --unset {limit}" in shown
    assert run(cluster, "configure", "new") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [limit, "3", "group"] in rows
    assert run(cluster, "configure", "new", "--unset", limit, "--config", "share.x=1") == 1
    assert "share.x" in capsys.readouterr().err
    assert run(cluster, "configure", "new", "--unset", limit) == 0
    assert f"configure new --config {limit}=3" in capsys.readouterr().out
    assert run(cluster, "configure", "new", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"][limit] == {"value": "5", "source": "default"}
    assert run(cluster, "configure", "new", "--config", f"{limit}=4", "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert changes == {limit: {"before": None, "after": "4"}}


def test_settings_need_a_group_and_the_action(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--config", "a=b"], ["configure", "a", "b"], ["reset", "g", "--unset", "a"]):
        with pytest.raises(SystemExit):
            run(cluster, *arguments)
    capsys.readouterr()
