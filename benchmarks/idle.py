"""Cost of consumers that have nothing to read, and of the first record.

    python -m benchmarks.idle [--rounds 5] [--short] [--output FILE]

Each measurement is a separate process on Apache Kafka, and the clients take turns within each
round. "CPU" is that of the process while 1 or 50 consumers wait for records in calls of one second.
Each is in a separate group. "MB each" is what 50 consumers need beyond the resident memory of a
process with 1, divided by 49. "first record" is the time from the constructor to the first record
in a new group. It does not include the import, which benchmarks.imports measures. The group's
initial rebalance delay is 0. "kept" is the resident memory after reading 480 MB, less that before
the consumer was created.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._clients import COMPILED_ONCE
from benchmarks._consumers import KOHORT, KOHORT_ASYNC, MODULES
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import hardware, versions
from benchmarks._rounds import spread, turns
from benchmarks._topics import LARGE, SHAPES, Filled, fill
from benchmarks.latency import new_topic
from tests.support.jars import KAFKA_VERSION, missing_kafka

MANY = 50
SECONDS, SHORT_SECONDS = 15, 5
READ_MB = 480
LIMIT_S = 300.0

ONE_CPU, MANY_CPU = "CPU of 1 consumer, %", "CPU of 50 consumers, %"
SWITCHES, EACH_MB = "context switches of 50 a second", "MB each of 50"
FIRST, KEPT = "first record, ms", "kept after 480 MB, MB"
MEASURES = (ONE_CPU, MANY_CPU, SWITCHES, EACH_MB, FIRST, KEPT)
Figures = dict[tuple[str, str], list[float]]
"""Figures of each (client, measure), one a round."""


class Goal(NamedTuple):
    """Goal for a figure of a client. Less is better."""

    measure: str
    client: str
    goal: float
    floor: float


GOALS = (
    Goal(MANY_CPU, KOHORT, 2.5, 4.0),
    Goal(MANY_CPU, KOHORT_ASYNC, 2.5, 4.0),
    Goal(EACH_MB, KOHORT_ASYNC, 0.2, 0.35),
    Goal(FIRST, KOHORT, 60.0, 100.0),
    Goal(KEPT, KOHORT, 20.0, 30.0),
)


def run(module: str, *words: object) -> dict[str, Any]:
    """Run a module of this package and return the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, words)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **COMPILED_ONCE},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {words}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(
    client: str, servers: str, topic: str, filled: Filled | None, seconds: int
) -> dict[str, float]:
    """Measure all figures of a client once."""
    one = run("_idling", client, servers, topic, group(), 1, seconds)
    many = run("_idling", client, servers, topic, group(), MANY, seconds)
    first = run("_first", client, servers, topic, group(), 1)
    figures = {
        ONE_CPU: one["cpu_percent"],
        MANY_CPU: many["cpu_percent"],
        SWITCHES: many["switches_per_s"],
        EACH_MB: (many["mb"] - one["mb"]) / (MANY - 1),
        FIRST: first["record_ms"],
    }
    if filled is not None:
        kept = run("_first", client, servers, filled.topic, group(), filled.records)
        figures[KEPT] = kept["mb"]
    return figures


def group() -> str:
    """Return a new group's name."""
    return f"g-{uuid.uuid4().hex[:8]}"


def table(figures: Figures, clients: Sequence[str]) -> str:
    """Return the medians, with minimum and maximum of the rounds, as Markdown."""
    lines = [
        f"| | {' | '.join(clients)} |",
        f"|---|{'---:|' * len(clients)}",
    ]
    for name in MEASURES:
        cells = [spread(figures.get((client, name), [])) for client in clients]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def goals(figures: Figures) -> str:
    """Return the goals and the figures as Markdown."""
    lines = ["| measure | figure | goal | never above | |", "|---|---:|---:|---:|---|"]
    for name, client, goal, floor in GOALS:
        if done := figures.get((client, name)):
            value = statistics.median(done)
            reached = verdict(value, goal, floor)
            lines.append(f"| {client}, {name} | {value:.3g} | {goal:g} | {floor:g} | {reached} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--short", action="store_true", help="2 rounds of 5 s, without 480 MB")
    parser.add_argument("--servers", help="measure on these instead of starting Apache Kafka")
    parser.add_argument("--clients", help="names separated by commas", default=",".join(MODULES))
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def measure_all(servers: str, args: argparse.Namespace) -> Figures:
    """Measure every client once a round."""
    figures: Figures = defaultdict(list)
    topic = new_topic(servers)
    shape = SHAPES[LARGE]
    filled = None if args.short else fill(servers, shape, READ_MB * 1000 / shape.records)
    rounds = args.rounds or (2 if args.short else 5)
    seconds = SHORT_SECONDS if args.short else SECONDS
    for number, client in turns(rounds, args.clients.split(","), warm_up=False):
        for name, value in measure(client, servers, topic, filled, seconds).items():
            figures[client, name].append(value)
        cpu = figures[client, MANY_CPU][-1]
        print(f"round {number} of {rounds}: {client}: {cpu:.1f} % for {MANY}", flush=True)
    return figures


def main() -> None:
    args = arguments()
    if args.servers is not None:
        figures = measure_all(args.servers, args)
    elif (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    else:
        with kafka() as server:
            server.start()
            figures = measure_all(server.bootstrap_servers, args)
    clients = args.clients.split(",")
    packages = "anyio", "confluent-kafka", "aiokafka", "kafka-python"
    setting = "; ".join([hardware(), *versions(*packages, java=True)])
    text = (
        f"{setting}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n"
        f"{table(figures, clients)}\n\n{goals(figures)}\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        about = __doc__.split("\n\n")[2]
        args.output.write_text(f"# Idle consumers\n\n{about}\n\n{text}")


if __name__ == "__main__":
    main()
