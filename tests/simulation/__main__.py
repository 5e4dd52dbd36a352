"""python -m tests.simulation: many seeds, or one of them with its log."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.simulation.simulate import OPERATIONS, simulate
from tests.simulation.soak import Report, soak

EVERY = 10.0
"""Seconds between two lines of progress."""


def one(seed: int, operations: int) -> int:
    """Print the log of a seed, and what it violates."""
    outcome = simulate(seed, operations)
    sys.stdout.buffer.write(outcome.log.render())
    sys.stdout.flush()
    for sentence in outcome.violations:
        print(sentence, file=sys.stderr)
    return 1 if outcome.violations else 0


def many(args: argparse.Namespace) -> int:
    """Print how it goes, each seed that violates something, and the figures."""
    last, told = 0.0, 0

    def progress(report: Report, took: float) -> None:
        nonlocal last, told
        for failure in report.failures[told:]:
            print(failure, flush=True)
        told = len(report.failures)
        if took - last >= EVERY:
            last = took
            print(report.text(took), flush=True)

    began = time.monotonic()
    report = soak(
        range(args.first, args.first + args.seeds),
        operations=args.operations,
        jobs=args.jobs,
        seconds=args.seconds,
        progress=progress,
    )
    print(report.text(time.monotonic() - began))
    return 1 if report.failures else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 when something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="this one alone, with its log")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of each seed")
    parser.add_argument("--jobs", type=int, default=None, help="processes; one for each core")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    args = parser.parse_args(arguments)
    return many(args) if args.seed is None else one(args.seed, args.operations)


if __name__ == "__main__":
    sys.exit(main())
