"""The demo on fewer flights, and its account on made-up readings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.cli.demo import _spark
from kohort.cli.demo._flights import CarrierFigures
from kohort.cli.demo._ledger import Ledger, Reading


@pytest.mark.timeout(150)
def test_the_demo_proves_itself_on_fewer_flights() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kohort", "demo", "--flights", "30000", "--no-spark"],
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30,000 of 30,000 records read" in done.stdout
    assert "Everything that was written was read" in done.stdout
    for callback in ("on_partitions_assigned", "on_partitions_revoked"):
        assert callback in done.stdout


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


def test_without_java_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "/nowhere")
    line = _spark.what_is_missing()
    assert line is not None
    assert "Install Java 17" in line
    assert "\n" not in line


def test_old_javas_are_told_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spark, "java_version", lambda: 11)
    line = _spark.what_is_missing()
    assert line is not None
    assert "Java 11 is too old" in line
