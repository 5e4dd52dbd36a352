"""The check of a release: its package index, its report, and the programs that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.release.__main__ import ProgramFailedError, Row, attempt, environment, report, run
from tools.release.index import write_index
from tools.release.placeholders import placeholders


def test_index_has_a_page_for_each_normalized_project(tmp_path: Path) -> None:
    names = ("A_b.c-1.0-py3-none-any.whl", "a-b-c-1.1.tar.gz", "kohort-1-py3-none-any.whl")
    address = write_index(tmp_path / "index", [tmp_path / name for name in names])
    assert address == (tmp_path / "index").as_uri()
    page = (tmp_path / "index" / "a-b-c" / "index.html").read_text()
    assert [name in page for name in names] == [True, True, False]
    assert "kohort-1" in (tmp_path / "index" / "kohort" / "index.html").read_text()


def test_report_marks_failures_and_lists_placeholders() -> None:
    rows = [Row("build", True, "made"), Row("wheel", False, "first\nsecond")]
    assert report(rows, ["README.md:1: repository.invalid"]).splitlines() == [
        "ok      build: made",
        "FAILED  wheel: first",
        "          second",
        "",
        "Placeholders, which a person replaces before a release",
        "-       README.md:1: repository.invalid",
    ]


def test_programs_get_no_variable_that_changes_a_build() -> None:
    given = {"KOHORT_PURE": "1", "PYTHONPATH": "x", "PIP_FIND_LINKS": "x", "PATH": "y"}
    wanted = {"PATH": "y", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CC": "false"}
    assert environment(given, {"CC": "false"}) == wanted


def test_row_fails_with_the_output_when_a_program_fails() -> None:
    command = (sys.executable, "-c", "print('begun'); raise SystemExit(3)")
    with pytest.raises(ProgramFailedError, match="ended with 3:\nbegun"):
        run(*command)
    row = attempt("build", lambda: run(*command))
    assert (row.is_good, row.result.splitlines()[-1]) == (False, "begun")


def test_placeholders_are_listed_with_their_place() -> None:
    found = placeholders()
    assert any(
        each.startswith("pyproject.toml:") and "repository.invalid" in each for each in found
    )
    assert any(each.endswith(": @PLACEHOLDER-owners") for each in found)
