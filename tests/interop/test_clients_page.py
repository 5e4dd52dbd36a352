"""The page of clients is complete and correct: each test that it names exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interop.clients import (
    CLIENTS,
    FEATURES,
    PATH,
    TOGETHER,
    TOOLS,
    Rows,
    document,
    full_name,
)

ROOT = PATH.parents[2]


def test_the_page_is_what_the_table_says() -> None:
    assert PATH.read_text() == document(), "run: python -m tests.interop.clients"


def test_each_client_has_a_test_or_a_reason_for_each_feature() -> None:
    for client in CLIENTS:
        assert client.shown.keys() == set(FEATURES), client.name
        assert all(client.shown.values()), client.name


@pytest.mark.timeout(120)
def test_each_test_that_is_named_is_there() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "interop"]
    command += ["-p", "no:cacheprovider", "tests/interop"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    found = set(done.stdout.splitlines())
    found |= {line.partition("[")[0] for line in found}
    tables: list[Rows] = [*(client.shown for client in CLIENTS), TOOLS, TOGETHER]
    cells = [cell for table in tables for cell in table.values() if not isinstance(cell, str)]
    named = {full_name(short) for cell in cells for short in cell}
    assert named - found == set()
