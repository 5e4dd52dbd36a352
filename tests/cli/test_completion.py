"""``kohort completion``: its scripts in bash and zsh."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from kohort.cli import main

STARTS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
PREPARE = {"bash": "", "zsh": "autoload -U compinit; compinit -u -D; unsetopt prompt_sp; "}
"""Shells as they start here, without the files of a user."""


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """The script for bash."""
    return written("bash", capsys, tmp_path)


def written(shell: str, capsys: pytest.CaptureFixture[str], folder: Path) -> Path:
    assert main(["completion", shell]) == 0
    file = folder / f"kohort.{shell}"
    file.write_text(capsys.readouterr().out)
    return file


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kohort gro", ["groups"]),
        ("kohort --v", ["--version"]),
        ("kohort groups --re", ["--read-committed"]),
        ("kohort groups re", ["reset"]),
        ("kohort groups reset billing --to -2h --ex", ["--execute"]),
        ("kohort topics ", ["create", "delete", "-h", "--help", "--json"]),
        ("kohort top --sort ", ["lag", "behind", "read", "new", "members", "group"]),
        ("kohort completion ", ["bash", "zsh", "-h", "--help"]),
        ("kohort tail orders --timeout ", []),
        ("kohort broker --schema-registry --ho", ["--host"]),
        ("kohort unknown ", []),
    ],
)
@pytest.mark.cases(11)
def test_bash_gets_the_words_of_a_place(script: Path, typed: str, completed: list[str]) -> None:
    words = " ".join(shlex.quote(word) for word in typed.split(" "))
    code = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({words}); "
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kohort; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    command = [*STARTS["bash"][:-1], "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = done.stdout.split()
    assert done.stderr == ""
    assert found[: len(completed)] == completed
    assert completed or not found


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.cases(2)
def test_tab_completes_in_a_shell(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = written(shell, capsys, tmp_path)
    (tmp_path / "client.properties").touch()
    terminal = Terminal(STARTS[shell], tmp_path)
    try:
        # The words of the marks are in parts, so that their echo is not taken for their output.
        show = 'kohort() { echo "got":"$*"; }; PS1="rea""dy> "; '
        terminal.type(f"{PREPARE[shell]}source {file}; {show}\n")
        terminal.read(r"ready> ")
        terminal.type("kohort gro\t--fail\t5m --prop\tclie\t\n")
        terminal.read(r"got:groups --fail-above 5m --properties client\.properties ?\r")
        terminal.type("kohort top --so\tbeh\t--js\t\n")
        terminal.read(r"got:top --sort behind --json ?\r")
        terminal.type("kohort topics cre\torders --part\t6\n")
        terminal.read(r"got:topics create orders --partitions 6 ?\r")
    finally:
        terminal.close()


class Terminal:
    """A program in a new terminal."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=os.environ | {"TERM": "xterm", "HISTFILE": "/dev/null"},
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read(self, pattern: str) -> None:
        """Read until the pattern comes. The test ends after its time otherwise."""
        text = ""
        while not re.search(pattern, text):
            text += os.read(self._ours, 4096).decode(errors="replace")

    def close(self) -> None:
        self._process.kill()
        with suppress(OSError):  # Linux reports the end of a terminal as an error
            while os.read(self._ours, 4096):
                pass
        os.close(self._ours)
        self._process.wait()
