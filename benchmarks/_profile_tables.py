"""Tables of benchmarks/profile.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks._perf import KINDS, WAITS, ThreadTime, Window, read
from benchmarks._profiled import CALLER, CONSUMER_THREAD, Profiled
from benchmarks._rounds import short

TERMS = """\
CPU time is divided by samples. Python: the interpreter and its objects. Lock: taking and releasing
the GIL and other locks. Copy: the kernel's receive, memcpy and memmove. CRC: checksums. Decoding:
kohort's compiled decoder. Kernel: the rest of the kernel. Other: the allocator of the C library,
and pyarrow. The caller reads all fields of each record: its Python includes the loop over objects,
its other the sums over columns. The last three columns are time without CPU: waiting for the GIL,
for a core, and for the rest, which is the broker or the other thread."""
UNKNOWN = "CPU"
"""Kind of code that is used without samples."""


class Cost(NamedTuple):
    """Work of some readings and the time of each thread, by its role."""

    wall_s: float
    records: int
    fetches: int
    per_batch: float
    threads: dict[str, ThreadTime]

    @classmethod
    def of(cls, found: Profiled, events: Iterable[str], per_batch: float) -> Cost:
        """Divide the time of one reading by the events of perf, or by thread if there are none.

        ``per_batch`` is the number of records in a batch.
        """
        window = Window(found.begin, found.end, (found.gil[0], found.gil[1]))
        by_id = read(events, window)
        threads: dict[str, ThreadTime] = {}
        for tid, role in found.threads.items():
            time = by_id.get(int(tid)) or _undivided(found, tid)
            threads.setdefault(role, ThreadTime()).add(time)
        wall = found.end - found.begin
        return cls(wall, found.records, found.fetches, per_batch, threads)

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.wall_s

    @property
    def units(self) -> dict[str, tuple[float, float]]:
        """Number of fetches, batches and records, each with the factor of its unit."""
        return {
            "fetch, us": (max(1, self.fetches), 1e6),
            "batch, us": (self.records / self.per_batch, 1e6),
            "record, ns": (self.records, 1e9),
        }

    def plus(self, other: Cost) -> Cost:
        """Add another round."""
        threads = {role: ThreadTime() for role in {**self.threads, **other.threads}}
        for each in (self, other):
            for role, time in each.threads.items():
                threads[role].add(time)
        return Cost(
            self.wall_s + other.wall_s,
            self.records + other.records,
            self.fetches + other.fetches,
            self.per_batch,
            threads,
        )


def _undivided(found: Profiled, tid: str) -> ThreadTime:
    """Return the time of a thread from the kernel's counters."""
    time = ThreadTime()
    cpu, core = found.cpu_s[tid], found.core_s[tid]
    time.cpu[UNKNOWN] = cpu
    time.waits["core"] = core
    time.waits["rest"] = max(0.0, found.end - found.begin - cpu - core)
    return time


def summary(costs: Mapping[tuple[str, str], Cost]) -> str:
    """Return a row for each topic and output: CPU of a record over all threads, and the waits."""
    waits = "consumer thread waits: GIL | core | rest | caller waits: GIL | core | rest"
    head = ["topic", "read as", "k records/s", "CPU ns/record", *KINDS, waits]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (2 + len(KINDS) + 2 * len(WAITS))}"]
    for (topic, output), cost in costs.items():
        total = ThreadTime()
        for time in cost.threads.values():
            total.add(time)
        ns = 1e9 / cost.records
        cells = [f"{cost.rate / 1000:,.0f}", short(total.cpu_s * ns)]
        cells += [short(total.cpu[kind] * ns) if kind in total.cpu else "" for kind in KINDS]
        for role in (CONSUMER_THREAD, CALLER):
            time = cost.threads.get(role, ThreadTime())
            cells += [f"{time.waits[wait] / cost.wall_s:.0%}" for wait in WAITS]
        lines.append(f"| {' | '.join([topic, output, *cells])} |")
    return f"{TERMS}\n\n## Summary\n\nWaits are shares of the time.\n\n" + "\n".join(lines)


def sections(costs: Mapping[tuple[str, str], Cost]) -> str:
    """Return a table for each topic and output."""
    return "\n\n".join(
        f"## {topic}, {output}\n\n{_table(cost)}" for (topic, output), cost in costs.items()
    )


def _table(cost: Cost) -> str:
    records = cost.records / max(1, cost.fetches)
    about = (
        f"{cost.rate / 1000:,.0f} thousand records/s. A fetch brought {records:,.0f} records in "
        f"{records / cost.per_batch:,.1f} batches."
    )
    waits = [f"waits: {WAITS[0]}", *WAITS[1:]]
    head = ["thread", "for each", "all CPU", *KINDS, *waits]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    for role, time in sorted(cost.threads.items(), key=lambda each: each[0] == CALLER):
        for unit, (number, factor) in cost.units.items():
            scale = factor / number
            seconds = [time.cpu_s, *(time.cpu[kind] for kind in KINDS)]
            seconds += [time.waits[wait] for wait in WAITS]
            name = role if unit.startswith("fetch") else ""
            cells = [short(each * scale) if each else "" for each in seconds]
            lines.append(f"| {' | '.join([name, unit, *cells])} |")
    return f"{about}\n\n" + "\n".join(lines)
