"""Command ``python -m tests.simulation``: many seeds, or one of them with its log."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.simulation.protocols import KINDS
from tests.simulation.simulate import OPERATIONS, simulate
from tests.simulation.soak import Report, soak

EVERY = 10.0
"""Seconds between two lines of progress."""


def one(seed: int, operations: int, kind: str | None) -> int:
    """Print the log of a seed and its violations."""
    outcome = simulate(seed, operations, kind)
    sys.stdout.buffer.write(outcome.log.render())
    sys.stdout.flush()
    for sentence in outcome.violations:
        print(sentence, file=sys.stderr)
    return 1 if outcome.violations else 0


def many(args: argparse.Namespace) -> int:
    """Print the progress, each seed with a violation, and the figures."""
    last, printed = 0.0, 0

    def progress(report: Report, took: float) -> None:
        nonlocal last, printed
        for failure in report.failures[printed:]:
            print(failure, flush=True)
        printed = len(report.failures)
        if took - last >= EVERY:
            last = took
            print(report.text(took), flush=True)

    began = time.monotonic()
    report = soak(
        range(args.first, args.first + args.seeds),
        operations=args.operations,
        kind=args.protocols,
        jobs=args.jobs,
        seconds=args.seconds,
        progress=progress,
    )
    print(report.text(time.monotonic() - began))
    return 1 if report.failures else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, which is 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone and print its log")
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="number of the first seed")
    parser.add_argument(
        "--operations", type=int, default=OPERATIONS, help="operations of each seed"
    )
    parser.add_argument(
        "--jobs", type=int, default=None, help="number of processes, by default one for each core"
    )
    parser.add_argument(
        "--protocols", choices=sorted(KINDS), help="group protocols instead of those of the seeds"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit")
    args = parser.parse_args(arguments)
    if args.seed is None:
        return many(args)
    return one(args.seed, args.operations, args.protocols)


if __name__ == "__main__":
    sys.exit(main())
