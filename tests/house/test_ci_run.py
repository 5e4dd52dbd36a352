"""Script that a change has to pass: the tests that it runs twice, and its report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house._source import ROOT

A, B = "tests/a/test_a.py::test_a", "tests/b/test_b.py::test_b[a (1), b]"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


SECOND = "test ARGS=--last-failed --last-failed-no-failures=none"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Checkout with a ``make`` that fails where the next line of ``statuses`` is 1."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(
        '#!/bin/sh\necho "$*" >> calls\nexit "$(sed -n "$(wc -l < calls)p" statuses)"\n'
    )
    make.chmod(0o755)
    return tmp_path


def run(checkout: Path, statuses: list[int], failed: list[str]) -> tuple[int, str, list[str]]:
    """Run it and return its status, its last line and the calls of make."""
    cache = checkout / ".pytest_cache" / "v" / "cache" / "lastfailed"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(dict.fromkeys(failed, True), indent=2) if failed else "")
    (checkout / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=checkout,
        env=os.environ
        | {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "KOHORT_REQUIRE_REAL": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = (checkout / "calls").read_text().splitlines()
    return done.returncode, (done.stdout.splitlines() or [""])[-1], calls


def test_ci_run_counts_none_when_all_tests_pass(checkout: Path) -> None:
    assert run(checkout, [0, 0], [A]) == (0, "run twice: 0", ["lint", "test"])


def test_ci_run_names_the_tests_that_ran_twice(checkout: Path) -> None:
    status, line, calls = run(checkout, [0, 2, 0], [A, B])
    assert (status, line) == (0, f"run twice: 2 ({A} {B})")
    assert calls == ["lint", "test", SECOND]


def test_ci_run_fails_when_a_test_fails_twice(checkout: Path) -> None:
    status, line, calls = run(checkout, [0, 2, 2], [B])
    assert (status, line) == (1, f"run twice: 1 ({B})")
    assert calls == ["lint", "test", SECOND]


@pytest.mark.parametrize("statuses", [[2], [0, 2]], ids=["lint", "no names"])
def test_ci_run_runs_nothing_twice_without_names(checkout: Path, statuses: list[int]) -> None:
    status, _, calls = run(checkout, statuses, [])
    assert status != 0
    assert calls == ["lint", "test"][: len(statuses)]
