"""Samples of one process by ``perf``: CPU time by kind of code, and reasons to wait by thread.

perf records two events. Samples of the CPU clock name the code that runs. Each switch of a thread
has the times at which it leaves its core and returns. The first argument of its system call says
what it waits for. A futex inside the interpreter is the GIL.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = ("Python", "lock", "copy", "CRC", "decoding", "kernel", "other")
"""Kinds of code. Copy is the kernel's receive, memcpy and memmove."""
WAITS = ("GIL", "core", "rest")
"""Reasons to wait. The rest is the broker, the other thread or a time-out."""
SAMPLES_PER_S = 4000
_FIRST_ARGUMENT = {"x86_64": "di", "aarch64": "x0"}

_SAMPLE = re.compile(
    r"\s*(\d+)\s+([\d.]+):\s+(\S+):\s+[0-9a-f]+ (.*?) ?\(([^()]*)\)"
    r"(?:\s+ABI:\d+\s+\w+:0x([0-9a-f]+))?\s*$"
)
_SWITCH = re.compile(r"\s*(\d+)\s+([\d.]+):\s+PERF_RECORD_SWITCH (IN|OUT)( +preempt)?")
_LOCK = re.compile(r"take_gil|drop_gil|PyThread_|pthread_|futex|sem_|__lll_|___?libc_lock")
_COPY = re.compile(r"mem(?:move|cpy)|copy_to_iter|copy_to_user|rep_movs|copy_page_to_iter")
_CRC = re.compile(r"crc", re.IGNORECASE)
_INTERPRETER = re.compile(r"libpython3|/python3[^/]*$|/lib-dynload/")
_DECODER = re.compile(r"/kohort/records/|lz4|zstd|cramjam")


def missing() -> str | None:
    """Return why perf cannot be used here, or None."""
    if shutil.which("perf") is None:
        return "perf is not installed (on Debian: apt-get install linux-perf)"
    if platform.machine() not in _FIRST_ARGUMENT:
        return f"the registers of {platform.machine()} are not known to this program"
    done = subprocess.run(
        [*command(Path("/dev/null")), "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[0]
        return f"perf has no permission to record: {reason}. Try kernel.perf_event_paranoid=1"
    return None


def command(output: Path) -> list[str]:
    """Return the words before the command line of the process to record."""
    events = f"cpu-clock/freq={SAMPLES_PER_S}/", "context-switches/period=1/"
    return [
        *("perf", "record", "-q", "-B", "-N", "-k", "CLOCK_MONOTONIC", "--switch-events"),
        *(word for event in events for word in ("-e", event)),
        *(f"--user-regs={_FIRST_ARGUMENT[platform.machine()]}", "-o", str(output), "--"),
    ]


def lines(recorded: Path) -> Iterator[str]:
    """Yield the events of a recording as text, in the order of time."""
    script = ["perf", "script", "-i", str(recorded), "--ns", "--show-switch-events"]
    fields = ["-F", "tid,time,event,ip,sym,dso,uregs"]
    with subprocess.Popen(
        [*script, *fields], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        raise RuntimeError(f"perf script failed with status {process.returncode}")


def kind(symbol: str, library: str) -> str:
    """Return the kind of code of a sample."""
    name = symbol.strip()
    in_kernel = library.startswith("[") and library not in ("[unknown]", "[vdso]")
    if _COPY.search(name):
        return "copy"
    if in_kernel:
        return "lock" if "futex" in name else "kernel"
    if _CRC.search(name) or "crc32c" in library:
        return "CRC"
    if _DECODER.search(library):
        return "decoding"
    if _LOCK.search(name):
        return "lock"
    return "Python" if _INTERPRETER.search(library) else "other"


class Window(NamedTuple):
    """Time to analyse, and the addresses in which a futex is the GIL.

    ``begin`` and ``end`` are seconds of the monotonic clock. ``gil`` is the first address and the
    address after the last.
    """

    begin: float
    end: float
    gil: tuple[int, int]

    def clip(self, begin: float, end: float) -> float:
        """Return how many seconds between two times are in the window."""
        return max(0.0, min(end, self.end) - max(begin, self.begin))


class ThreadTime:
    """Seconds of one thread: ``cpu`` by kind of code and ``waits`` by reason."""

    def __init__(self) -> None:
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.waits: defaultdict[str, float] = defaultdict(float)

    @property
    def cpu_s(self) -> float:
        """All CPU seconds."""
        return sum(self.cpu.values())

    def add(self, other: ThreadTime) -> None:
        """Add the time of another recording."""
        for mine, theirs in ((self.cpu, other.cpu), (self.waits, other.waits)):
            for name, seconds in theirs.items():
                mine[name] += seconds


def read(events: Iterable[str], window: Window) -> dict[int, ThreadTime]:
    """Return the time of each thread, by its id.

    The time on a core comes from the switches. It is divided by the samples.
    """
    samples: defaultdict[int, Counter[str]] = defaultdict(Counter)
    threads: defaultdict[int, ThreadTime] = defaultdict(ThreadTime)
    left: dict[int, tuple[float, str]] = {}
    argument: dict[int, int] = {}
    for line in events:
        if (switch := _SWITCH.match(line)) is not None:
            tid, now = int(switch[1]), float(switch[2])
            if switch[3] == "OUT":
                reason = "core" if switch[4] else _reason(argument.pop(tid, None), window)
                left[tid] = now, reason
            elif tid in left:
                begin, reason = left.pop(tid)
                threads[tid].waits[reason] += window.clip(begin, now)
        elif (sample := _SAMPLE.match(line)) is not None:
            tid, now, event = int(sample[1]), float(sample[2]), sample[3]
            if event.startswith("context-switches"):
                if sample[6] is not None:
                    argument[tid] = int(sample[6], 16)
            elif window.begin <= now <= window.end:
                samples[tid][kind(sample[4], sample[5])] += 1
    for tid, (begin, reason) in left.items():
        threads[tid].waits[reason] += window.clip(begin, window.end)
    for tid, counts in samples.items():
        wall = window.end - window.begin
        on_core = max(0.0, wall - sum(threads[tid].waits.values()))
        every = sum(counts.values())
        for name, count in counts.items():
            threads[tid].cpu[name] = on_core * count / every
    return dict(threads)


def _reason(argument: int | None, window: Window) -> str:
    first, after = window.gil
    return "GIL" if argument is not None and first <= argument < after else "rest"
