"""CPU time of a process that imports a client.

    python -m benchmarks.imports [--rounds 20] [--before FOLDER] [--output FILE]

Each figure is user and system time of a new Python process, in milliseconds, with compiled
bytecode. "nothing" is a process that imports nothing, and "asyncio" one that imports asyncio. The
clients take turns within each round. ``--before`` measures another checkout of kohort, too.
"""

from __future__ import annotations

import argparse
import compileall
import resource
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from benchmarks._goals import verdict
from benchmarks._rounds import spread, turns

HERE = Path(__file__).parents[1]
SYNC, ASYNC, BEFORE, AIOKAFKA = "kohort", "kohort async", "kohort before", "aiokafka"
STATEMENTS = {
    SYNC: "from kohort import KafkaConsumer",
    ASYNC: "from kohort import AsyncKafkaConsumer",
    BEFORE: "from kohort import KafkaConsumer",
    AIOKAFKA: "import aiokafka",
    "confluent-kafka": "import confluent_kafka",
    "kafka-python": "import kafka",
    "asyncio": "import asyncio",
    "nothing": "pass",
}
GOAL, FLOOR = 0.8, 1.1


class Case(NamedTuple):
    """Statement to run, and the folder where Python starts."""

    name: str
    folder: Path


def measure(case: Case) -> float:
    """Return the milliseconds of CPU time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", STATEMENTS[case.name]]
    subprocess.run(command, cwd=case.folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def report(figures: dict[str, list[float]]) -> str:
    """Return the medians and the goal as Markdown."""
    lines = ["| statement of | CPU, ms |", "|---|---:|"]
    lines += [f"| {name} | {spread(values)} |" for name, values in figures.items()]
    theirs = statistics.median(figures[AIOKAFKA])
    lines += ["", "| ratio | figure | goal | never above | |", "|---|---:|---:|---:|---|"]
    for name in (SYNC, ASYNC):
        ratio = statistics.median(figures[name]) / theirs
        reached = verdict(ratio, GOAL, FLOOR)
        lines.append(f"| {name} / {AIOKAFKA} | {ratio:.3g} | {GOAL:g} | {FLOOR:g} | {reached} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--before", type=Path, help="folder of another checkout of kohort")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    folders = [HERE] if args.before is None else [HERE, args.before]
    for folder in folders:
        compileall.compile_dir(folder / "kohort", quiet=1)
    cases = [Case(name, HERE) for name in STATEMENTS if name != BEFORE]
    if args.before is not None:
        cases.append(Case(BEFORE, args.before))
    figures: dict[str, list[float]] = defaultdict(list)
    for number, case in turns(args.rounds, cases):
        taken = measure(case)
        if number:
            figures[case.name].append(taken)
    text = report(figures)
    print(text)
    if args.output is not None:
        args.output.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
