"""Description of the machine that runs a measurement, and of its other load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.needs import java as java_program

BUSY = 10
"""Percent of all cores. If other processes take more, the figures are not reliable."""
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its children, including ended ones."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    total = sum(int(field) for field in fields[11:15]) / TICK
    # Any thread may have started children.
    for child in _children(pid):
        try:
            total += cpu_of(int(child))
        except FileNotFoundError:
            continue  # it ended in the meantime
    return total


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


class Others:
    """Load of all other processes and of other machines on the same host."""

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Return the percentage of all cores since the last call, or since the constructor."""
        before, self._before = self._before, self._now()
        total, busy, ours = (now - then for now, then in zip(self._before, before, strict=True))
        return max(0.0, busy - ours) / total * 100 if total else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return CPU seconds: of all cores, those not idle, and of this process."""
        line = Path("/proc/stat").read_text().splitlines()[0]
        fields = [int(field) / TICK for field in line.split()[1:9]]
        idle = fields[3] + fields[4]
        return sum(fields), sum(fields) - idle, cpu_of(os.getpid())


def load_of(shares: Sequence[float]) -> str:
    """Return a sentence on the percentages that other processes took at each measurement."""
    share = statistics.median(shares)
    return (
        f"The machine was {'quiet' if share < BUSY else '**busy**'}: other processes took "
        f"{share:.0f} % of its cores (median), {max(shares):.0f} % at most."
    )


def hardware() -> str:
    """Return processor, cores, memory and system."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu[1] if cpu else platform.processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}"
    )


def versions(*packages: str, java: bool = False, go: bool = False) -> list[str]:
    """Return the versions of kohort with its commit, of Python, and of the other programs."""
    commit = _output("git", "describe", "--always", "--dirty")
    program = java_program()
    return [
        f"kohort {importlib.metadata.version('kohort')} ({commit})",
        f"{platform.python_implementation()} {platform.python_version()}",
        *(f"{package} {importlib.metadata.version(package)}" for package in packages),
        *(_output(program, "-version").splitlines()[:1] if java and program else ()),
        *([_output("go", "version")] if go and shutil.which("go") else ()),
    ]


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()
