"""Processes of other programs, observed through /proc."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
RUNNER = "python_streaming_source_runner"
"""Part of the command line of the process in which a query's source lives."""


def is_alive(pid: int) -> bool:
    """Return True if the process runs. A process that waits for its parent's wait() has ended."""
    found = _stat(pid)
    return found is not None and found[0] not in ("Z", "X")


def descendants(pid: int) -> list[int]:
    """Return the running descendants of a process."""
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
    """Return the processes of streaming sources below a process."""
    return {one for one in descendants(pid) if RUNNER in command_line(one)}


def command_line(pid: int) -> str:
    """Return the command line of a process. It is empty if the process has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(*pids: int) -> None:
    """Kill these processes. Ignore those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[str, int] | None:
    """Return state and parent. The name before them, in brackets, may contain anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)
