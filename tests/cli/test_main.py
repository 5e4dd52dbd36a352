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
