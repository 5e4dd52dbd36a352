"""A reader's way through the code stays short. The figures come from traces of real runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.house._source import ROOT
from tests.house.walks._trace import Entry, figures

MOST = {
    "record": {"files": 18, "reentries": 3},
    "rebalance": {"files": 33, "borders": 4},
}
"""Walk -> figure -> the highest value allowed. It may only sink."""


@pytest.mark.parametrize("walk", MOST)
def test_walk_is_no_longer_than_before(
    walk: str, record_property: Callable[[str, object], None]
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.house.walks", "--json", walk],
        cwd=ROOT,
        env={**os.environ, "KOHORT_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)[walk]
    for name, value in found.items():
        record_property(f"{walk}_{name}", value)
    assert {name: found[name] for name, most in MOST[walk].items() if found[name] > most} == {}


def _entry(place: str, *, thread: int = 1, caller: str | None = None) -> Entry:
    file, function = place.split(":")
    calling, _, name = (caller or "").partition(":")
    return Entry(thread, 0, file, function, (calling, name) if caller else None)


def test_figures_count_first_entries_only() -> None:
    entries = [
        _entry("a.py:one"),
        _entry("b.py:two", caller="a.py:one"),
        _entry("a.py:three", thread=2, caller="b.py:two"),
        _entry("a.py:one", caller="b.py:two"),
    ]
    found = figures(entries, every_function=True)
    assert (found.files, found.functions, found.threads, found.reentries) == (2, 3, 1, 1)


def test_figures_leave_out_functions_that_call_no_other_file() -> None:
    entries = [
        _entry("a.py:one"),
        _entry("a.py:leaf", caller="a.py:one"),
        _entry("b.py:two", caller="a.py:one"),
    ]
    assert [entry.function for entry in figures(entries).order] == ["one"]


def test_borders_count_changes_of_file_inside_the_membership() -> None:
    machine = "coordinator_client/_membership.py", "coordinator_client/_state.py"
    entries = [
        _entry(f"{machine[0]}:one"),
        _entry("other.py:two"),
        _entry(f"{machine[1]}:three"),
        _entry(f"{machine[0]}:four"),
    ]
    assert figures(entries, every_function=True).borders == 2
