"""The ``kohort`` command itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

import kohort
from kohort.cli import PIPE_CLOSED, main
from kohort.records import decoder_choice
from kohort.testing import Cluster
from tests.cli.test_tail import RUN


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["x" * 1000] * 200)  # more than a buffer of stdout
        yield cluster


@pytest.mark.parametrize(
    "words",
    [
        ["top", "--interval", "0.01"],
        ["groups", "absent"],  # its error goes into the pipe as well
        ["tail", "orders", "-n", "200"],
        ["tail", "orders", "--follow"],
        ["completion", "bash"],
        ["errors"],
        ["--help"],
    ],
    ids=" ".join,
)
@pytest.mark.cases(2)
def test_command_ends_quietly_when_its_pipe_is_closed(cluster: Cluster, words: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN, *words],
            check=False,
            stdout=theirs,
            stderr=theirs if "absent" in words else subprocess.PIPE,
            env=os.environ
            | {"KOHORT_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "PYTHONUNBUFFERED": ""},
        )
    finally:
        os.close(theirs)
    assert (done.returncode, done.stderr or b"") == (PIPE_CLOSED, b"")


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


def test_interrupt_of_any_command_ends_it_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.cli._errors.explained", Mock(side_effect=KeyboardInterrupt))
    assert main(["errors", "27"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["errors", "27"], ["errors", "nonsense"]], ids=" ".join)
@pytest.mark.cases(2)
def test_sentences_are_wrapped_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(words)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 60 and not line.startswith("See: ")] == []
    assert any("error code" in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [["produce", "orders"], ["dead-letters", "orders"], ["topics"], ["groups", "history", "g"]],
    ids=" ".join,
)
@pytest.mark.cases(2)
def test_wrong_address_is_one_line_as_soon_as_it_has_failed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--bootstrap-servers", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"kohort {words[0]}: no bootstrap server could be reached: ")
    assert error.count("\n") == 1


def test_missing_file_has_no_number_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "--properties", "/absent.properties"]) == 1
    assert capsys.readouterr().err == (
        "kohort groups: /absent.properties: No such file or directory\n"
    )
