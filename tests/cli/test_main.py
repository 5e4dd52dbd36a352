"""The ``kohort`` command itself."""

from __future__ import annotations

import pytest

import kohort
from kohort.cli import main


def test_kohort_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kohort {kohort.__version__}\n"
