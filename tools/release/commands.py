"""Running of programs, the interpreters of this machine, and the rows of the report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
WORK: Final = ROOT / "build" / "release"
DIST: Final = WORK / "dist"
"""Folder of what would be uploaded, and of nothing else."""
PINS: Final = ROOT / "constraints" / "pins.txt"
OLDEST: Final = (3, 11)
NEWEST: Final = (3, 14)
_TAG = (
    "import sys, sysconfig; v = sys.version_info; "
    "print(v.major, v.minor, 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '', sep='.')"
)


class Row(NamedTuple):
    """One line of the report. ``ok`` is None for what was not tried."""

    subject: str
    check: str
    ok: bool | None
    result: str


class ProgramFailedError(Exception):
    """A program of the check ended with an error. The text ends with its last lines."""


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def run(
    command: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> str:
    """Return the output of a program. Raises ProgramFailedError."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise ProgramFailedError(f"{command[0]} ended with {done.returncode}:\n{last}")
    return done.stdout


def tool(name: str) -> str | None:
    """Return the path of a program beside this interpreter or on the path, or None."""
    beside = BIN / name
    return str(beside) if beside.exists() else shutil.which(name)


def interpreters() -> dict[str, Path]:
    """Return the supported interpreters of this machine by version, such as ``3.13`` or ``3.14t``.

    Found are those of pyenv and those on the path.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = sorted(pyenv.glob("*/bin/python3"))
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        for suffix in ("", "t"):
            if found := shutil.which(f"python3.{minor}{suffix}"):
                candidates.append(Path(found))
    versions: dict[str, Path] = {}
    for path in candidates:
        try:
            major, minor_text, threads = run([path, "-c", _TAG]).strip().split(".")
        except ProgramFailedError:
            continue  # a shim of pyenv without its version
        if OLDEST <= (int(major), int(minor_text)) <= NEWEST:
            versions.setdefault(f"{major}.{minor_text}{threads}", path)
    return dict(sorted(versions.items()))
