"""Installation of each distribution in a clean environment, and a consumer that runs there."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.release.commands import DIST, PINS, ROOT, WORK, ProgramFailedError, Row, project, run

RECORDS: Final = 100_000
_READER: Final = ROOT / "tools" / "release" / "reader.py"
_HOUSE: Final = WORK / "wheelhouse"
"""Wheels of the dependencies. With it and DIST, no installation asks an index."""
_TESTS: Final = ("tests/records", "tests/consumer/test_sync_methods.py")
"""Tests that run with the lowest versions of the dependencies."""


def newest() -> list[str]:
    """Return the requirements of kohort, as they are."""
    return [str(each) for each in project()["dependencies"]]


def lowest() -> list[str]:
    """Return the requirements of kohort with the lowest version that each allows."""
    return [re.sub(r">=", "==", each) for each in newest()]


def collect(version: str, python: Path) -> None:
    """Write wheels of the dependencies and of the build tools into a folder."""
    house = _HOUSE / version
    for wanted in (newest(), lowest()):
        run([python, "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", house, *wanted])
    tools = ["setuptools", "cython"]
    run([python, "-m", "pip", "download", "-q", "-d", house, "-c", PINS, *tools])


def install_and_read(
    kind: str, version: str, python: Path, versions: str, distribution: Path
) -> Iterator[Row]:
    """Install a distribution with the newest or the lowest dependencies, and run a consumer.

    ``kind`` is ``compiled``, ``plain`` or ``no compiler``, where the source is built without one.
    """
    subject = f"{distribution.suffix[1:]}, {kind}, {version}"
    try:
        wanted = newest() if versions == "newest" else lowest()
        environment = _environment(f"{kind}-{version}-{versions}".replace(" ", "-"), python)
        began = time.monotonic()
        _install(environment, version, [str(distribution), *wanted], kind)
        took = time.monotonic() - began
        facts = _read(environment)
        problem = _problem(kind, facts)
    except ProgramFailedError as error:
        yield Row(subject, versions, False, str(error))
        return
    rate = facts["read"] / facts["seconds"] / 1000
    decoders = "compiled" if facts["compiled"] else f"plain, because {facts['plain_reason']}"
    text = f"{facts['read']:,} records, {rate:,.0f} thousand/s; {decoders}; pip {took:.0f} s"
    yield Row(subject, versions, not problem, problem or text)


def run_tests(version: str, python: Path, wheel: Path) -> Iterator[Row]:
    """Run tests of the records and of the consumer with the lowest dependencies."""
    subject = f"{wheel.suffix[1:]}, compiled, {version}"
    environment = _environment(f"tests-{version}", python)
    needed = ["pytest", "pytest-timeout", "hypothesis", "trio", "cryptography", "trustme", "lz4"]
    needed += ["pyarrow", "pytest-asyncio", "typing_extensions"]
    try:
        _install(environment, version, [str(wheel), *lowest()], "compiled")
        run([environment, "-m", "pip", "install", "-q", "-c", PINS, *needed, *lowest()])
        # A copy without kohort beside it, so that the tests import the installed one.
        place = WORK / f"tests-{version}"
        shutil.rmtree(place, ignore_errors=True)
        for folder in ("tests", "tools"):
            shutil.copytree(ROOT / folder, place / folder)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, place)
        command = [environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS]
        last = run(command, cwd=place).strip().splitlines()[-1]
        yield Row(subject, "tests, lowest", True, last)
    except ProgramFailedError as error:
        yield Row(subject, "tests, lowest", False, str(error))


def distributions(kind: str, version: str) -> list[Path]:
    """Return the file of DIST that a Python with glibc installs for this kind."""
    if kind == "no compiler":
        return list(DIST.glob("*.tar.gz"))
    tag = f"cp{version.replace('.', '')}"
    abi = tag if tag.endswith("t") else f"{tag}-{tag}"
    return list(DIST.glob("*-py3-none-any.whl" if kind == "plain" else f"*-{abi}-manylinux*.whl"))


def _environment(name: str, python: Path) -> Path:
    """Return the Python of a new environment."""
    folder = WORK / "environments" / name
    shutil.rmtree(folder, ignore_errors=True)
    run([python, "-m", "venv", folder])
    return folder / "bin" / "python"


def _install(python: Path, version: str, wanted: list[str], kind: str) -> None:
    command: list[object] = [python, "-m", "pip", "install", "-q", "--no-index"]
    command += ["--find-links", _HOUSE / version, *wanted]
    env = {"CC": "false", "CXX": "false"} if kind == "no compiler" else {}
    run(command, env=env)
    run([python, "-m", "pip", "check"])


def _read(python: Path) -> dict[str, Any]:
    """Return the last line of the reader, with all of its output."""
    output = run([python, "-I", "-W", "error", _READER, RECORDS], cwd=WORK)
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found | {"output": output}


def _problem(kind: str, facts: dict[str, Any]) -> str:
    """Return what the consumer should have done, or nothing."""
    if facts["read"] != RECORDS or facts["version"] != project()["version"]:
        return f"read {facts['read']} records by kohort {facts['version']}"
    if facts["compiled"] != (kind == "compiled"):
        return f"the decoders are not {kind}: {facts['plain_reason']}"
    choice = "compiled" if facts["compiled"] else f"plain, because {facts['plain_reason']}"
    lines = facts["output"].splitlines()
    if lines.count(f"kohort INFO record decoders: {choice}") != 1:
        return "the decoders were not logged once"
    if f"kohort {facts['version']} (record decoders: {choice})" not in lines:
        return "kohort --version did not name the decoders"
    return ""
