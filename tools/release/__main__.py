"""Command ``python -m tools.release``, which is ``make release-check``. It uploads nothing.

cibuildwheel builds the wheels of a release on hosted runners, for each Python and system. Here the
running Python builds its own files, and a consumer reads records with each of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
WORK: Final = ROOT / "build" / "release"
DIST: Final = WORK / "dist"
PINS: Final = ROOT / "constraints" / "pins.txt"
PYTHON: Final = sys.executable
RECORDS: Final = 100_000
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_REMOVED: Final = ("KOHORT_", "PIP_FIND_LINKS", "PIP_REQUIRE", "PYTHON")
"""Beginnings of the variables that would change what a clean machine builds or installs."""
_NO_COMPILER: Final = {"CC": "false", "CXX": "false"}


class Row(NamedTuple):
    """One line of the report."""

    subject: str
    is_good: bool
    result: str


class ProgramFailedError(Exception):
    """A program of the check ended with an error. The text ends with its last lines."""


class Trial(NamedTuple):
    """An installation of one built file into a new environment."""

    name: str
    files: str
    """Pattern of the built file."""
    decoders: str
    """Decoders that the consumer must report: compiled or plain."""
    dependencies: str = "newest"
    environ: Mapping[str, str] = {}


TRIALS: Final = (
    Trial("compiled wheel", "*-cp*.whl", "compiled"),
    Trial("compiled wheel, lowest dependencies", "*-cp*.whl", "compiled", "lowest"),
    Trial("plain wheel", "*-none-any.whl", "plain"),
    Trial("plain wheel, lowest dependencies", "*-none-any.whl", "plain", "lowest"),
    Trial("source without a compiler", "*.tar.gz", "plain", environ=_NO_COMPILER),
)


def environment(environ: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a program: without those that would change the result."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_REMOVED)}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | dict(more)


def run(*command: object, **more: str) -> str:
    """Return the output of a program, with more variables. Raise ProgramFailedError."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment(os.environ, more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise ProgramFailedError(f"{command[0]} ended with {done.returncode}:\n{last}")
    return done.stdout


def attempt(subject: str, action: Callable[[], str]) -> Row:
    """Do one part of the check, and return the row of its result."""
    print(f"{subject} ...", file=sys.stderr, flush=True)
    try:
        return Row(subject, True, action())
    except ProgramFailedError as error:
        return Row(subject, False, str(error))


def build() -> str:
    """Build the source distribution, and from it a compiled and a plain wheel of this Python."""
    shutil.rmtree(WORK, ignore_errors=True)
    date = run("git", "log", "-1", "--format=%ct").strip()
    pinned = {"PIP_CONSTRAINT": str(PINS), "SOURCE_DATE_EPOCH": date}
    run(PYTHON, "-m", "build", "--outdir", DIST, KOHORT_REQUIRE_EXTENSIONS="1", **pinned)
    [source] = DIST.glob("*.tar.gz")
    wheel = (PYTHON, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", DIST)
    run(*wheel, "--build-constraint", PINS, source, KOHORT_PURE="1", **pinned)
    return ", ".join(sorted(path.name for path in DIST.iterdir()))


def check_metadata() -> str:
    """Run ``twine check`` on the built files."""
    run(PYTHON, "-m", "twine", "check", "--strict", *DIST.iterdir())
    return "twine check finds nothing"


def download() -> str:
    """Download the dependencies of kohort, and what builds it, into folders."""
    newest: list[str] = PROJECT["dependencies"]
    lowest = [each.replace(">=", "==") for each in newest]
    for name, wanted in (("newest", newest), ("lowest", lowest)):
        command = (PYTHON, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
        run(*command, "--dest", WORK / name, *wanted)
        run(*command, "--dest", WORK / name, "--constraint", PINS, "setuptools", "cython")
    return f"{', '.join(newest)}, and the lowest versions of these"


def install_and_read(trial: Trial) -> str:
    """Install one file of kohort without a network, and let a consumer read there."""
    place = WORK / "environments" / trial.name.replace(", ", "-").replace(" ", "-")
    run(PYTHON, "-m", "venv", "--clear", place)
    python = place / "bin" / "python"
    [file] = DIST.glob(trial.files)
    command = (python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-index")
    variables = {"PIP_CONFIG_FILE": os.devnull, **trial.environ}
    run(*command, "--find-links", WORK / trial.dependencies, file, **variables)
    run(python, "-m", "pip", "check")
    run(python.with_name("kohort"), "--version")
    reader = Path(__file__).with_name("reader.py")
    return run(python, "-I", "-W", "error", reader, RECORDS, trial.decoders).splitlines()[-1]


def rows() -> Iterator[Row]:
    """Do the parts of the check in their order, up to the first that the others need."""
    for subject, action in (
        ("build", build),
        ("metadata", check_metadata),
        ("dependencies", download),
    ):
        row = attempt(subject, action)
        yield row
        if not row.is_good:
            return
    for trial in TRIALS:
        yield attempt(trial.name, partial(install_and_read, trial))


def report(found: Iterable[Row]) -> str:
    """Return the rows as one table."""
    lines = []
    for subject, is_good, result in found:
        text = result.replace("\n", "\n" + " " * 10)
        lines.append(f"{'ok' if is_good else 'FAILED':6}  {subject}: {text}")
    return "\n".join(lines)


def main() -> int:
    """Run the check. Return 1 if a part of it failed."""
    found = list(rows())
    text = report(found)
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "report.txt").write_text(text + "\n")
    print(f"\n{text}\n\n{DIST} has the built files, {WORK / 'report.txt'} this report.")
    return 0 if all(row.is_good for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
