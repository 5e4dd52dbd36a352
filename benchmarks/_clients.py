"""Clients of benchmarks/fetch.py. Each reading is a separate process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks import _read
from benchmarks._reading import Reading
from benchmarks._topics import Filled, checksum
from tests.interop import franz
from tests.support.jars import jars, missing_kafka
from tests.support.needs import java

LIMIT_S = 900.0
COMPILED_ONCE = {"PYTHONDONTWRITEBYTECODE": ""}
"""Setting that lets Python write bytecode. Compiling would count as memory of a client."""
NO_SPINNING = {"OPENBLAS_NUM_THREADS": "1"}
"""Setting for numpy, which pyarrow imports. Without it numpy starts threads that
spin for a while.
"""
HERE = Path(__file__).parent
JAVA_SOURCE = HERE / "Drain.java"


class ReadingError(Exception):
    """A client failed, or has not read all records."""


class Client(NamedTuple):
    """Client to measure. ``words`` has the fields ``{servers}``, ``{topic}``, ``{group}``,
    ``{records}``.
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str] = {}

    def read(self, bootstrap_servers: str, filled: Filled) -> Reading:
        """Read the topic to its end. Raise ReadingError if that fails."""
        fields = {
            "servers": bootstrap_servers,
            "topic": filled.topic,
            "group": f"g-{uuid.uuid4().hex[:8]}",
            "records": filled.records,
        }
        try:
            done = subprocess.run(
                [word.format(**fields) for word in self.words],
                cwd=HERE.parent,
                env={**os.environ, **COMPILED_ONCE, **NO_SPINNING, **self.env},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ReadingError(f"{self.name} did not read {filled.topic} to its end") from error
        if done.returncode:
            raise ReadingError(f"{self.name}, {filled.topic}: {done.stderr[-2000:]}")
        reading = Reading(**json.loads(done.stdout.splitlines()[-1]))
        # The limit does not read records.
        total = filled.checksum if reading.total is None else checksum(reading.total)
        if (reading.records, total) != filled[1:]:
            raise ReadingError(f"{self.name} read something else of {filled}: {reading}")
        return reading


def clients(wanted: list[str], folder: Path) -> tuple[list[Client], dict[str, str]]:
    """Return the clients that can run here, and the reasons why others cannot.

    Programs are built in ``folder``.
    """
    missing = {name: reason for name in wanted if (reason := _missing(name)) is not None}
    return [_client(name, folder) for name in wanted if name not in missing], missing


def _missing(name: str) -> str | None:
    if name in names.TABLES and find_spec("pyarrow") is None:
        return "pyarrow is not installed"
    if name == names.FRANZ and shutil.which("go") is None:
        return "Go is not installed"
    if name == names.JAVA and _javac() is None:
        return "there is no compiler for Java (javac)"
    if name == names.JAVA:
        return missing_kafka()
    return None


def _client(name: str, folder: Path) -> Client:
    if name == names.FRANZ:
        flags = "bootstrap={servers}", "topic={topic}", "group={group}", "count={records}"
        return Client(name, (franz.build(folder), *(f"-{flag}" for flag in flags), "drain"))
    if name == names.JAVA:
        path = f"{jars()}/*:{folder}"
        command = [str(_javac()), "-cp", path, "-d", str(folder), str(JAVA_SOURCE)]
        subprocess.run(command, check=True)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        fields = "{servers}", "{topic}", "{group}", "{records}"
        return Client(name, (str(java()), quiet, "-cp", path, JAVA_SOURCE.stem, *fields))
    fields = "{servers}", "{topic}", "{group}", "{records}"
    env = {"KOHORT_PURE": "1"} if name == names.PURE else {}
    return Client(name, (sys.executable, "-m", _read.__name__, name, *fields), env)


def _javac() -> Path | None:
    """Return the compiler of the Java that is run."""
    program = java()
    compiler = None if program is None else Path(program).resolve().with_name("javac")
    return compiler if compiler is not None and compiler.exists() else None
