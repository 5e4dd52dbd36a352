"""The ``kohort`` command itself."""

from __future__ import annotations

import pytest

import kohort
from kohort.cli import main
from kohort.records import decoder_choice


def test_kohort_prints_version_and_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    expected = f"kohort {kohort.__version__} (record decoders: {decoder_choice()})\n"
    assert capsys.readouterr().out == expected


def test_version_is_one_line_when_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert len(capsys.readouterr().out.splitlines()) == 1
