"""Installation of each distribution in a clean environment, and a consumer that runs there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tools.release.commands import (
    DIST,
    PINS,
    ROOT,
    WORK,
    NotTriedError,
    ProgramFailedError,
    Row,
    attempt,
    project,
    run,
)
from tools.release.index import write_index
from tools.release.pythons import Interpreter, builder, require_headers

RECORDS: Final = 100_000
KINDS: Final = ("compiled", "plain", "no compiler")
"""Contents of an index: all of DIST, no wheel for this Python, or the source distribution alone."""
_READER: Final = ROOT / "tools" / "release" / "reader.py"
_MUSL: Final = ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64")


def check_installs(pythons: Iterable[Interpreter]) -> Iterator[Row]:
    """Install each kind of distribution on each interpreter, and let a consumer read there."""
    for python in pythons:
        for versions, wanted in (("newest", newest()), ("lowest", lowest())):
            for kind in KINDS if versions == "newest" else KINDS[:2]:
                yield attempt(
                    f"kohort, {kind}, {python}",
                    f"install, {versions}",
                    partial(install_and_read, python, kind, versions, wanted),
                )


def newest(*extras: str) -> list[str]:
    """Return the requirements of kohort and of some extras, as they are."""
    optional = project()["optional-dependencies"]
    return [*project()["dependencies"], *(each for name in extras for each in optional[name])]


def lowest(*extras: str) -> list[str]:
    """Return the requirements of kohort and of some extras with the lowest version of each."""
    return [re.sub(r">=", "==", each) for each in newest(*extras)]


def pinned(*names: str) -> list[str]:
    """Return the requirements of some projects with the versions of constraints/pins.txt."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", PINS.read_text(), re.MULTILINE))
    versions = {name.lower(): version for name, version in pins.items()}
    return [f"{name}=={versions[name]}" for name in names]


def collect(python: Interpreter, name: str, wanted: Iterable[str]) -> list[Path]:
    """Return wheels of requirements for one Python, which pip downloads."""
    folder = WORK / "wheelhouse" / name
    shutil.rmtree(folder, ignore_errors=True)
    # An interpreter of a distribution may have no pip.
    command: list[object] = [sys.executable, "-m", "pip", "--python", python.path, "download"]
    if python.musl:
        # That interpreter may have been built without TLS, so that its pip reaches no index.
        digits, abi = python.version.removesuffix("t").replace(".", ""), python.tags.split("-")[1]
        command = [sys.executable, "-m", "pip", "download", f"--python-version={digits}"]
        command += [f"--platform={each}" for each in _MUSL]
        command += [f"--abi={each}" for each in (abi, "abi3", "none")]
    try:
        run([*command, "-q", "--only-binary=:all:", "-d", folder, *wanted])
    except ProgramFailedError as error:
        if absent := re.search(r"No matching distribution found for (\S+)", str(error)):
            raise NotTriedError(f"{absent[1]} has no wheel for {python}") from None
        raise
    return sorted(folder.iterdir())


def install_and_read(python: Interpreter, kind: str, versions: str, wanted: list[str]) -> str:
    """Install kohort from a local index, and return what a consumer did with it."""
    if kind == "compiled":
        require_wheel(python)
    files = _dependencies(python, versions)
    name = f"{kind}-{python}-{versions}".replace(" ", "-")
    place = new_environment(name, python)
    began = time.monotonic()
    install(place, name, [*_offered(kind), *files], wanted, kind)
    took = time.monotonic() - began
    facts = _read(place)
    if problem := _problem(kind, facts):
        raise ProgramFailedError(problem)
    rate = facts["read"] / facts["seconds"] / 1000
    decoders = "compiled" if facts["compiled"] else f"plain, because {facts['plain_reason']}"
    return f"{facts['read']:,} records, {rate:,.0f} thousand/s; {decoders}; pip {took:.0f} s"


def require_wheel(python: Interpreter) -> None:
    """Raise an error if DIST has no compiled wheel for an interpreter.

    It is NotTriedError if this machine cannot build one, and ProgramFailedError otherwise.
    """
    platform = "musllinux" if python.musl else "manylinux"
    if any(DIST.glob(f"*-{python.tags}-*{platform}*.whl")):
        return
    builds_it = builder(python)
    if builds_it is None:
        raise NotTriedError(f"CPython {python.version} for glibc, which builds it, is not here")
    require_headers(builds_it)
    raise ProgramFailedError(f"{DIST} has no compiled wheel for CPython {python}")


def new_environment(name: str, python: Interpreter) -> Path:
    """Return the Python of a new environment."""
    folder = WORK / "environments" / name
    shutil.rmtree(folder, ignore_errors=True)
    run([python.path, "-m", "venv", folder])
    return folder / "bin" / "python"


def install(
    python: Path, name: str, files: Iterable[Path], wanted: Iterable[str], kind: str = "compiled"
) -> None:
    """Install this version of kohort with requirements from an index of these files alone."""
    address = write_index(WORK / "indexes" / name, files)
    kohort = f"kohort=={project()['version']}"
    env = {"PIP_CONFIG_FILE": os.devnull}
    if kind == "no compiler":
        env |= {"CC": "false", "CXX": "false"}
    command = [python, "-m", "pip", "install", "-q", "--no-cache-dir", "--index-url", address]
    run([*command, kohort, *wanted], env=env)
    run([python, "-m", "pip", "check"])


@cache
def _dependencies(python: Interpreter, versions: str) -> list[Path]:
    """Return wheels of the dependencies, and of what builds kohort from source."""
    wanted = newest() if versions == "newest" else lowest()
    name = f"{python}-{versions}".replace(" ", "-")
    builders = collect(python, f"{name}-build", pinned("setuptools", "cython"))
    return [*collect(python, name, wanted), *builders]


def _offered(kind: str) -> list[Path]:
    files = list(DIST.glob("*.tar.gz"))
    if kind == "compiled":
        files = list(DIST.iterdir())
    elif kind == "plain":
        files += DIST.glob("*-py3-none-any.whl")
    return files


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
