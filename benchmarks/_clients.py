"""Clients of benchmarks/fetch.py. Each reading is a separate process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks import _read
from benchmarks._kafka import java_program, missing_java_program
from benchmarks._program import ProgramError, new_group, run_command
from benchmarks._reading import Reading
from benchmarks._topics import Filled, checksum
from tests.interop import franz


class Client(NamedTuple):
    """Client to measure. ``words`` has the fields ``{servers}``, ``{topic}``, ``{group}``,
    ``{records}``.
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str] = {}

    def read(self, bootstrap_servers: str, filled: Filled) -> Reading:
        """Read the topic to its end. Raise ProgramError if that fails."""
        fields = {
            "servers": bootstrap_servers,
            "topic": filled.topic,
            "group": new_group(),
            "records": filled.records,
        }
        command = [word.format(**fields) for word in self.words]
        reading = Reading(**run_command(command, self.env))
        # The limit does not read records.
        total = filled.checksum if reading.total is None else checksum(reading.total)
        if (reading.records, total) != filled[1:]:
            raise ProgramError(f"{self.name} read something else of {filled}: {reading}")
        return reading


def clients(wanted: Sequence[str], folder: Path) -> tuple[list[Client], dict[str, str]]:
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
    return missing_java_program() if name == names.JAVA else None


def _client(name: str, folder: Path) -> Client:
    fields = "{servers}", "{topic}", "{group}", "{records}"
    if name == names.FRANZ:
        options = ("bootstrap", "topic", "group", "count")
        flags = (f"-{option}={field}" for option, field in zip(options, fields, strict=True))
        return Client(name, (franz.build(folder), *flags, "drain"))
    if name == names.JAVA:
        return Client(name, (*java_program("Drain", folder), *fields))
    env = {"KOHORT_PURE": "1"} if name == names.PURE else {}
    return Client(name, (sys.executable, "-m", _read.__name__, name, *fields), env)
