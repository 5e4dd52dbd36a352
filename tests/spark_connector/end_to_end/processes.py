"""Processes that are not ours, looked at through /proc."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
RUNNER = "python_streaming_source_runner"
"""In the command line of the process in which a query's source lives."""


def is_alive(pid: int) -> bool:
    """Whether the process runs; False for one that has ended and is not yet waited for."""
    found = _stat(pid)
    return found is not None and found[0] not in ("Z", "X")


def descendants(pid: int) -> list[int]:
    """The children of a process and theirs, that run now."""
    parents = {
        int(entry.name): stat[1]
        for entry in PROC.iterdir()
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None
    }
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return [one for one in found[1:] if is_alive(one)]


def runners(pid: int) -> set[int]:
    """The processes of streaming sources below a process."""
    return {one for one in descendants(pid) if RUNNER in command_line(one)}


def command_line(pid: int) -> str:
    """The words that a process was started with; empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(*pids: int) -> None:
    """SIGKILL; who is gone is gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[str, int] | None:
    """State and parent; what stands before them, in brackets, may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)
