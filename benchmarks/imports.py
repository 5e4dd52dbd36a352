"""Start of a process: the import of a client, its first record, and 50 consumers at once.

    python -m benchmarks.imports [--rounds 5] [--short] [--before FOLDER] [--output FILE]

Each figure is from a new Python process with compiled bytecode, and the clients take turns within
each round. "process" is the CPU time of a process that only imports, and "import" the CPU time of
the statement in it. "nothing" imports nothing, and "asyncio" imports asyncio and ssl. "first
record" is the time from the constructor to the first record in a new group, without the import.
"50 consumers" is the time until each of 50 in one process has a record, in separate groups. The
broker is Apache Kafka, whose initial rebalance delay is 0. ``--before`` measures another checkout
of kohort, too.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _consumers as clients
from benchmarks._clients import COMPILED_ONCE
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import hardware, versions
from benchmarks._rounds import spread, turns
from benchmarks.latency import new_topic
from tests.support.jars import KAFKA_VERSION, missing_kafka

HERE = Path(__file__).parents[1]
BEFORE = "kohort before"
STATEMENTS = {
    clients.KOHORT: "from kohort import KafkaConsumer",
    clients.KOHORT_ASYNC: "from kohort import AsyncKafkaConsumer",
    BEFORE: "from kohort import KafkaConsumer",
    clients.AIOKAFKA: "import aiokafka",
    clients.CONFLUENT: "import confluent_kafka",
    clients.KAFKA_PYTHON: "import kafka",
    "asyncio": "import asyncio, ssl",
    "nothing": "pass",
}
MANY = 50
LIMIT_S = 300.0

PROCESS, IMPORT = "process, CPU ms", "import, CPU ms"
FIRST, FIRST_CPU = "first record, ms", "first record, CPU ms"
ALL = f"{MANY} consumers, ms"
MEASURES = (PROCESS, IMPORT, FIRST, FIRST_CPU, ALL)
Figures = dict[tuple[str, str], list[float]]
"""Figures of each (client, measure), one a round."""


class Goal(NamedTuple):
    """Goal for a figure of ``client``, as a ratio to that of ``over`` unless that is None."""

    measure: str
    client: str
    over: str | None
    goal: float
    floor: float


GOALS = (
    Goal(PROCESS, clients.KOHORT, clients.AIOKAFKA, 0.8, 1.1),
    Goal(PROCESS, clients.KOHORT_ASYNC, clients.AIOKAFKA, 0.8, 1.1),
    Goal(IMPORT, clients.KOHORT, None, 60.0, 80.0),
    Goal(FIRST, clients.KOHORT, None, 60.0, 100.0),
    Goal(FIRST, clients.KOHORT_ASYNC, None, 60.0, 100.0),
    Goal(ALL, clients.KOHORT, None, 500.0, 1000.0),
    Goal(ALL, clients.KOHORT_ASYNC, None, 500.0, 1000.0),
)


class Case(NamedTuple):
    """Client to measure, and the folder where Python starts."""

    name: str
    folder: Path

    def python(self, *words: object) -> str:
        """Run Python with these arguments, and return the last line of its output."""
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self.folder,
            env={**os.environ, **COMPILED_ONCE},
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        return (done.stdout.splitlines() or [""])[-1]

    def run(self, module: str, servers: str, topic: str, *words: object) -> dict[str, Any]:
        """Run a module of this package for the client, and return the JSON that it prints."""
        client = clients.KOHORT if self.name == BEFORE else self.name
        group = f"g-{uuid.uuid4().hex[:8]}"
        text = self.python("-m", f"benchmarks.{module}", client, servers, topic, group, *words)
        result: dict[str, Any] = json.loads(text)
        return result


def measure_import(case: Case) -> dict[str, float]:
    """Return the milliseconds of CPU time of one process, and of its import."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock = "import time; began = time.process_time()"
    said = case.python(
        "-c", f"{clock}\n{STATEMENTS[case.name]}\nprint(time.process_time() - began)"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {PROCESS: taken * 1000, IMPORT: float(said) * 1000}


def measure(case: Case, servers: str, topic: str) -> dict[str, float]:
    """Return each figure of one client."""
    figures = measure_import(case)
    if case.name in clients.MODULES or case.name == BEFORE:
        first = case.run("_first", servers, topic, 1)
        figures |= {FIRST: first["record_ms"], FIRST_CPU: first.get("cpu_ms", math.nan)}
        if ready_ms := case.run("_idling", servers, topic, MANY, 0).get("ready_ms"):
            figures[ALL] = ready_ms
    return figures


def table(figures: Figures, names: list[str]) -> str:
    """Return the medians, with minimum and maximum of the rounds, as Markdown."""
    lines = [f"| | {' | '.join(MEASURES)} |", f"|---|{'---:|' * len(MEASURES)}"]
    for name in names:
        cells = [spread(figures.get((name, each), [])) for each in MEASURES]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def goals(figures: Figures) -> str:
    """Return the goals and the figures as Markdown."""
    lines = ["| measure | figure | goal | never above | |", "|---|---:|---:|---:|---|"]
    for measured, client, over, goal, floor in GOALS:
        done = figures.get((client, measured))
        theirs = [1.0] if over is None else figures.get((over, measured))
        if done and theirs:
            value = statistics.median(done) / statistics.median(theirs)
            name = client if over is None else f"{client} / {over}"
            reached = verdict(value, goal, floor)
            lines.append(f"| {name}, {measured} | {value:.3g} | {goal:g} | {floor:g} | {reached} |")
    return "\n".join(lines)


def measure_all(servers: str, cases: list[Case], rounds: int) -> Figures:
    """Measure every client once a round, after a round that warms up."""
    figures: Figures = defaultdict(list)
    topic = new_topic(servers)
    for number, case in turns(rounds, cases):
        taken = measure(case, servers, topic)
        print(f"round {number} of {rounds}: {case.name}: {taken}", flush=True)
        for name, value in taken.items() if number else ():
            figures[case.name, name].append(value)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--short", action="store_true", help="2 rounds")
    parser.add_argument("--servers", help="measure on these instead of starting Apache Kafka")
    parser.add_argument("--clients", help="names separated by commas", default=",".join(STATEMENTS))
    parser.add_argument("--before", type=Path, help="folder of another checkout of kohort")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.servers is None and (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    for folder in [HERE] if args.before is None else [HERE, args.before]:
        compileall.compile_dir(folder / "kohort", quiet=1)
    names = [name for name in args.clients.split(",") if args.before or name != BEFORE]
    cases = [Case(name, args.before if name == BEFORE else HERE) for name in names]
    rounds = args.rounds or (2 if args.short else 5)
    if args.servers is not None:
        figures = measure_all(args.servers, cases, rounds)
    else:
        with kafka() as server:
            server.start()
            figures = measure_all(server.bootstrap_servers, cases, rounds)
    packages = "anyio", "confluent-kafka", "aiokafka", "kafka-python"
    setting = "; ".join([hardware(), *versions(*packages, java=True)])
    text = (
        f"{setting}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n"
        f"{table(figures, names)}\n\n{goals(figures)}\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        about = __doc__.split("\n\n")[2]
        args.output.write_text(f"# Start\n\n{about}\n\n{text}")


if __name__ == "__main__":
    main()
