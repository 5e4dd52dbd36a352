"""Demo on fewer flights, and its report on made-up readings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import spark
from examples.demo.demo import PAGE
from examples.demo.flights import CarrierFigures
from examples.demo.ledger import Ledger, Reading
from examples.demo.moves import Moves
from kohort.cli import _demo, main


@pytest.mark.timeout(150)
def test_the_demo_proves_itself_on_fewer_flights() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kohort", "demo", "--flights", "30000", "--no-spark"],
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30,000 of 30,000 records read" in done.stdout
    assert "Everything that was written was read" in done.stdout
    for callback in ("on_partitions_assigned", "on_partitions_revoked"):
        assert callback in done.stdout
    assert done.stdout.endswith(f"{PAGE}\n")
    page = PAGE.read_text(encoding="utf-8")
    for member in ("member-a", "member-b", "member-c"):
        assert member in page
    assert not re.search(r"<script|(src|href)=", page)


@pytest.mark.long  # the demo once more
@pytest.mark.timeout(100)
def test_demo_proves_itself_when_members_outnumber_flights() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kohort", "demo", "--flights", "1", "--no-spark"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 records read" in done.stdout
    for fate in ("member-a gets the order to leave", "member-b is killed", "member-c has left"):
        assert fate in done.stdout


@pytest.mark.parametrize("count", ["-5", "0", "1.5", "many"])
def test_demo_is_a_usage_error_when_flights_is_no_count(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--flights", count])
    assert ended.value.code == 2
    assert f"--flights: {count!r} is not a whole number above 0" in capsys.readouterr().err


def test_demo_names_its_place_when_only_the_wheel_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_demo, "CLONE", tmp_path)
    assert main(["demo"]) == 2
    assert "source repository of kohort: run `make demo`" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_a_streaming_query_is_a_member_beside_the_others() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kohort", "demo", "--flights", "30000"],
        capture_output=True,
        text=True,
        timeout=270,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything that was written was read" in done.stdout
    assert "spark on_partitions_revoked" in done.stdout
    assert re.search(r"│ member-a left +│ [0-5 ]*[0-5] +│ +│", done.stdout), done.stdout


def test_partitions_that_move_are_told_when_each_has_one_owner() -> None:
    moves = Moves(range(3))
    moves.record_callback("assigned", "a", [0, 1, 2], 1.0)
    moves.record_callback("assigned", "b", [], 2.0)
    moves.record_callback("revoked", "a", [2], 3.0)
    moves.record_callback("assigned", "b", [2], 4.0)
    moves.record_end("a", "left")
    moves.record_callback("revoked", "a", [0, 1], 5.0)
    moves.record_callback("assigned", "b", [0, 1], 6.0)
    moves.record_end("b", "killed")
    moves.record_callback("assigned", "a", [0, 1, 2], 7.0)
    first, both, second = frozenset({0, 1}), frozenset({0, 1, 2}), frozenset({2})
    assert moves.moments == [
        (1.0, "a joined", {"a": both}),
        (4.0, "b joined", {"a": first, "b": second}),
        (6.0, "a left", {"b": both}),
        (7.0, "a joined, b killed", {"a": both}),
    ]


def read_all(ledger: Ledger, member: str, *offsets: int) -> None:
    for offset in offsets:
        ledger.add(member, Reading(0, offset, "AA", 2.0))


def test_a_ledger_with_everything_read_once_has_no_faults() -> None:
    ledger = Ledger({0: 3})
    read_all(ledger, "a", 0, 1, 2)
    assert ledger.complete
    assert ledger.faults(killed="", committed={0: 3}) == []
    assert ledger.by_carrier() == {"AA": CarrierFigures(3, 3, 6)}


def test_a_missing_record_is_a_fault() -> None:
    ledger = Ledger({0: 3})
    read_all(ledger, "a", 0, 2)
    assert not ledger.complete
    (fault,) = ledger.faults(killed="", committed={0: 3})
    assert "1 records were not read" in fault


def test_a_record_that_was_never_written_is_a_fault() -> None:
    ledger = Ledger({0: 1})
    read_all(ledger, "a", 0, 1)
    (fault,) = ledger.faults(killed="", committed={0: 1})
    assert "never written" in fault


def test_only_what_the_killed_member_had_may_be_read_twice() -> None:
    ledger = Ledger({0: 2})
    read_all(ledger, "killed", 0)
    read_all(ledger, "other", 0, 1)
    assert ledger.faults(killed="killed", committed={0: 2}) == []
    assert ledger.by_carrier() == {"AA": CarrierFigures(2, 2, 4)}
    read_all(ledger, "killed", 1)
    (fault,) = ledger.faults(killed="killed", committed={0: 2})
    assert "read twice" in fault


def test_offsets_that_are_not_committed_to_the_end_are_a_fault() -> None:
    ledger = Ledger({0: 1})
    read_all(ledger, "a", 0)
    (fault,) = ledger.faults(killed="", committed={})
    assert "are not the ends" in fault


def test_ledger_needs_no_offset_when_a_partition_is_empty() -> None:
    ledger = Ledger({0: 1, 1: 0})
    read_all(ledger, "a", 0)
    assert ledger.faults(killed="", committed={0: 1}) == []
    assert ledger.faults(killed="", committed={0: 1, 1: 0}) == []
    (fault,) = ledger.faults(killed="", committed={0: 1, 1: 2})
    assert "are not the ends" in fault


def test_without_java_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "/nowhere")
    line = spark.missing_requirement()
    assert line is not None
    assert "Install Java 17" in line
    assert "\n" not in line


def test_old_javas_are_told_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "java_version", lambda: 11)
    line = spark.missing_requirement()
    assert line is not None
    assert "Java 11 is too old" in line
