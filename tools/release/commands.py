"""Running of programs, the folders of the check, and the rows of the report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
WORK: Final = ROOT / "build" / "release"
DIST: Final = WORK / "dist"
"""Folder of what would be uploaded, and of nothing else."""
PINS: Final = ROOT / "constraints" / "pins.txt"
_BEGAN: Final = time.monotonic()
_REMOVED: Final = ("KOHORT_", "PIP_FIND_LINKS", "PIP_REQUIRE", "PYTHON")
"""Beginnings of the variables that would change what a clean machine builds or installs."""


class Row(NamedTuple):
    """One line of the report. ``ok`` is None for what was not tried."""

    subject: str
    check: str
    ok: bool | None
    result: str


class ProgramFailedError(Exception):
    """A program of the check ended with an error. The text ends with its last lines."""


class NotTriedError(Exception):
    """A part of the check cannot be done on this machine. The text says why."""


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def attempt(subject: str, check: str, action: Callable[[], str]) -> Row:
    """Do one part of the check with a line before it, and return the row of its result."""
    print(
        f"{time.monotonic() - _BEGAN:6.0f} s  {subject}: {check} ...", file=sys.stderr, flush=True
    )
    try:
        return Row(subject, check, True, action())
    except ProgramFailedError as error:
        return Row(subject, check, False, str(error))
    except NotTriedError as error:
        return Row(subject, check, None, str(error))


def environment(
    environ: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables for a program: without those that would change the result."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_REMOVED)}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | dict(more or {})


def run(
    command: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    limit: float | None = None,
) -> str:
    """Return the output of a program. Raises ProgramFailedError.

    A program that runs longer than ``limit`` seconds is killed, which is an error, too.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=environment(os.environ, env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as error:
        last = _last_lines(error.output or b"")
        text = f"{command[0]} did not end within {limit:.0f} s:\n{last}"
        raise ProgramFailedError(text) from None
    if done.returncode:
        last = _last_lines(done.stdout)
        raise ProgramFailedError(f"{command[0]} ended with {done.returncode}:\n{last}")
    return done.stdout.decode(errors="replace")


def _last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").strip().splitlines()[-15:])


def last_line(output: str) -> str:
    """Return the last line of a program's output, or nothing."""
    return (output.strip().splitlines() or [""])[-1]


def only(paths: Iterable[Path], wanted: str) -> Path:
    """Return the one path. Raises ProgramFailedError, with the name of what was wanted."""
    found = list(paths)
    if len(found) != 1:
        raise ProgramFailedError(f"{len(found)} files instead of one: {wanted}")
    return found[0]


def tool(name: str) -> str | None:
    """Return the path of a program beside this interpreter or on the path, or None."""
    for folder in (BIN, WORK / "tools"):
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name)


def source_date() -> dict[str, str]:
    """Return SOURCE_DATE_EPOCH as the time of the last commit, in seconds since 1970.

    Builds of one commit are then the same to the byte.
    """
    return {"SOURCE_DATE_EPOCH": run(["git", "log", "-1", "--format=%ct"]).strip()}
