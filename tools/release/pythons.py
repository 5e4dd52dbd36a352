"""The interpreters of this machine: one for each supported version of CPython, and for musl."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tools.release.commands import WORK, NotTriedError, ProgramFailedError, run, tool

SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t")
"""Versions that a release has wheels for. ``t`` marks the free-threaded build."""
_FACTS: Final = """
import json, platform, sys, sysconfig
version = "%d.%d" % sys.version_info[:2]
print(json.dumps({
    "version": version + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
    "musl": platform.libc_ver()[0] != "glibc",
    "name": sys.implementation.name,
}))
"""

_FOLDERS: Final = """
import json, sysconfig
print(json.dumps([sysconfig.get_path(name) for name in ("include", "platinclude")]))
"""


class Interpreter(NamedTuple):
    """An interpreter of CPython for Linux."""

    version: str
    musl: bool
    path: Path

    @property
    def libc(self) -> str:
        """Name of the C library that the interpreter runs on."""
        return "musl" if self.musl else "glibc"

    @property
    def tags(self) -> str:
        """Tags of the wheels for it, without the platform."""
        digits = self.version.replace(".", "")
        return f"cp{digits.removesuffix('t')}-cp{digits}"

    def __str__(self) -> str:
        return f"{self.version} {self.libc}"


@cache
def interpreters() -> list[Interpreter]:
    """Return the supported interpreters of this machine, the first of each version and C library.

    Found are those of pyenv, those on the path, and the one that runs this.
    """
    found: dict[tuple[str, bool], Interpreter] = {}
    for path in _candidates():
        try:
            facts = json.loads(run([path, "-c", _FACTS]))
        except (ProgramFailedError, OSError, ValueError):
            continue
        key = (facts["version"], facts["musl"])
        if facts["name"] == "cpython" and facts["version"] in SUPPORTED:
            found.setdefault(key, Interpreter(*key, path))
    return [found[key] for key in sorted(found, key=lambda key: (key[1], SUPPORTED.index(key[0])))]


def missing(found: list[Interpreter]) -> list[str]:
    """Return the versions without an interpreter, and musl if there is none at all."""
    versions = {each.version for each in found if not each.musl}
    absent = [f"{version} glibc" for version in SUPPORTED if version not in versions]
    return absent if any(each.musl for each in found) else [*absent, "any version, musl"]


def require_headers(python: Interpreter) -> None:
    """Raise NotTriedError if an interpreter has no headers that a module can be compiled with.

    One that was unpacked from a distribution's package may lack them, or the folder they include.
    """
    compiler = tool("cc")
    if compiler is None:
        raise NotTriedError("no C compiler is here")
    folders = json.loads(run([python.path, "-c", _FOLDERS]))
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / "headers.c"
    source.write_text("#include <Python.h>\n")
    try:
        run([compiler, "-fsyntax-only", *(f"-I{folder}" for folder in folders), source])
    except ProgramFailedError as error:
        faults = [line.partition("error: ")[2] for line in str(error).splitlines()]
        reason = next(filter(None, faults), "the compiler fails")
        raise NotTriedError(f"CPython {python} has no usable headers: {reason}") from None


def builder(python: Interpreter) -> Interpreter | None:
    """Return the interpreter for glibc that builds the wheels of a version, or None."""
    if not python.musl:
        return python
    same = [each for each in interpreters() if each.version == python.version and not each.musl]
    return same[0] if same else None


def _candidates() -> Iterator[Path]:
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    shims = [folder for folder in folders if folder.name == "shims"]
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))]
    roots += [folder.parent for folder in shims]
    for root in dict.fromkeys(roots):
        # The newest fix of a version first.
        yield from sorted((root / "versions").glob("*/bin/python3"), key=_numbers, reverse=True)
    for folder in folders:
        if folder not in shims:
            for version in SUPPORTED:
                if (path := folder / f"python{version}").exists():
                    yield path
    yield Path(sys.executable)


def _numbers(path: Path) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", path.parts[-3])]
