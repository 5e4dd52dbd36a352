"""Tests of the records and of the consumer on an installed wheel."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.release.commands import DIST, ROOT, WORK, Row, attempt, last_line, run
from tools.release.installs import (
    collect,
    install,
    lowest,
    new_environment,
    newest,
    pinned,
    require_wheel,
)
from tools.release.pythons import Interpreter

EXTRAS: Final = ("arrow", "crypto", "lz4", "testing")
"""Extras whose lowest versions are tested with those of kohort."""
TESTS: Final = ("tests/records", "tests/consumer")
WORKERS: Final = ("--numprocesses=6", "--dist=loadfile", "--no-loadscope-reorder")
"""Processes of pytest. Tests of the consumer wait more than they compute."""
LIMIT: Final = 1800.0
"""Seconds after which a run of the tests is an error."""
TOOLS: Final = (
    "aiokafka",
    "confluent-kafka",
    "hypothesis",
    "kafka-python",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "trio",
)
SOURCES: Final = ("benchmarks", "docs", "examples", "tests", "tools", "pyproject.toml", "README.md")
MARKERS: Final = "not (long or slow or real_kafka or old_kafka or kerberos or spark or interop)"


def check_tests(pythons: list[Interpreter]) -> Iterator[Row]:
    """Run tests with the lowest and the newest dependencies, then those of the hosted workflow."""
    for python in [each for each in pythons if not each.musl][:1]:
        subject = f"kohort, compiled, {python}"
        yield attempt(subject, "tests, lowest", partial(_tests, python, "lowest", lowest(*EXTRAS)))
        yield attempt(subject, "tests, newest", partial(_tests, python, "newest", newest(*EXTRAS)))
    for python in pythons:
        subject = f"kohort, compiled, {python}"
        yield attempt(subject, "tests of cibuildwheel", partial(_as_cibuildwheel, python))


def cibuildwheel() -> dict[str, Any]:
    """Return the table ``tool.cibuildwheel`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    return dict(found["cibuildwheel"])


def _tests(python: Interpreter, versions: str, requirements: list[str]) -> str:
    name = f"tests-{versions}-{python}".replace(" ", "-")
    place = _installed(python, name, [*requirements, *pinned(*TOOLS)])
    # The report has the last lines alone: the names of the tests that failed.
    command = [place, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-m", MARKERS]
    # The lowest anyio uses a name that this pytest is going to remove.
    command += ["-W", "ignore::pytest.PytestRemovedIn10Warning", *WORKERS, *TESTS]
    return last_line(run(command, cwd=_copy(name), limit=LIMIT))


def _as_cibuildwheel(python: Interpreter) -> str:
    """Run the command of the hosted workflow in an environment like that of cibuildwheel."""
    options = cibuildwheel()
    name = f"tests-hosted-{python}".replace(" ", "-")
    place = _installed(python, name, [*newest(), *options["test-requires"]])
    program, *arguments = options["test-command"].split()
    assert program == "python"
    folder = _copy(name, options["test-sources"])
    return last_line(run([place, *arguments], cwd=folder, env=options["test-environment"]))


def _installed(python: Interpreter, name: str, wanted: list[str]) -> Path:
    """Return the Python of a new environment with the wheel of kohort and with requirements."""
    require_wheel(python)
    place = new_environment(name, python)
    install(place, name, [*DIST.iterdir(), *collect(python, name, wanted)], wanted)
    return place


def _copy(name: str, sources: Iterable[str] = SOURCES) -> Path:
    """Return a folder with the tests and without kohort, so that they import the installed one."""
    folder = WORK / "suites" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for each in sources:
        if (ROOT / each).is_dir():
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / each, folder / each, ignore=skipped)
        else:
            shutil.copy(ROOT / each, folder)
    return folder
