"""Runs of many seeds in several processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.simulate import OPERATIONS, simulate

CHUNK = 10
"""Number of seeds that a process takes at a time."""
SHOWN = 5
"""Number of violations of a seed that are printed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Seed with a violation."""

    seed: int
    operations: int
    profile: str
    violations: list[str]
    kind: str | None = None

    def __str__(self) -> str:
        shown = [f"  {sentence}" for sentence in self.violations[:SHOWN]]
        more = len(self.violations) - len(shown)
        return "\n".join(
            [
                f"seed {self.seed} ({self.profile}) violates:",
                *shown,
                *([f"  and {more} more"] if more else []),
                f"again: {replay(self.seed, self.operations, self.kind)}",
            ]
        )


@dataclass(slots=True)
class Report:
    """Results of some seeds."""

    tally: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.tally += other.tally
        self.failures += other.failures

    def text(self, seconds: float) -> str:
        counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.tally.items()]
        rates = [
            f"{self.tally[name] / seconds:,.1f} {name}/s"
            for name in ("seeds", "operations", "records")
        ]
        violated = f"{len(self.failures):,} seeds with violations"
        return f"{', '.join(counts)}; {violated}; in {seconds:.0f} s: {', '.join(rates)}"


def replay(seed: int, operations: int = OPERATIONS, kind: str | None = None) -> str:
    """Return the command that repeats one seed to the last byte, and prints its log."""
    protocols = "" if kind is None else f" --protocols {kind}"
    return f"python -m tests.simulation --seed {seed} --operations {operations}{protocols}"


def run_seeds(seeds: Iterable[int], operations: int, kind: str | None = None) -> Report:
    """Run the seeds one after the other in this process."""
    logging.disable(logging.CRITICAL)
    report = Report()
    try:
        for seed in seeds:
            try:
                outcome = simulate(seed, operations, kind)
            except Exception as error:
                failure = Failure(seed, operations, "no end", [f"raised {error!r}"], kind)
                report.failures.append(failure)
                continue
            report.tally += outcome.tally()
            if outcome.violations:
                report.failures.append(
                    Failure(seed, operations, outcome.profile, outcome.violations, kind)
                )
    finally:
        logging.disable(logging.NOTSET)
    return report


def soak(
    seeds: Sequence[int],
    *,
    operations: int = OPERATIONS,
    kind: str | None = None,
    jobs: int | None = None,
    seconds: float = float("inf"),
    progress: Callable[[Report, float], None] = lambda report, took: None,
) -> Report:
    """Run the seeds in several processes, until all are done or the time is over.

    ``kind`` replaces the group protocols that the seeds draw.
    """
    began = time.monotonic()
    total = Report()
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=context) as pool:
        running = {pool.submit(partial(run_seeds, chunk, operations, kind)) for chunk in chunks}
        for done in as_completed(running):
            total.add(done.result())
            took = time.monotonic() - began
            progress(total, took)
            if took > seconds:
                pool.shutdown(cancel_futures=True)
                break
    return total
