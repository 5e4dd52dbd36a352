"""In-process cluster compared with Apache Kafka, on the same machine and in the same run.

    python -m benchmarks.cluster [--rounds 5] [--size MB] [--records N] [--output FILE]

Both run in separate processes, and the clients in this one. The two take turns within each round,
in alternating order, so that load on the machine affects both. A ratio is therefore the median of
the ratios of the rounds. The first round warms up and is not counted. Each row reports the load of
other processes on the machine. Without Java, kohort is measured alone.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from benchmarks import _workloads
from benchmarks._kafka import kafka
from benchmarks._machine import Others, cpu_of, hardware, versions
from benchmarks._rounds import spread, turns
from tests.support.jars import KAFKA_VERSION, missing_kafka

KOHORT, KAFKA = "kohort", "Apache Kafka"
BUSY = 10
"""Percent of all cores. If other processes take more, the figures are not reliable."""
FRESH = """
import time
start = time.perf_counter()
from kohort.testing import Cluster
imported = time.perf_counter()
with Cluster():
    first = time.perf_counter()
again = time.perf_counter()
with Cluster():
    second = time.perf_counter()
print(imported - start, first - imported, second - again)
"""
IMPORT = """
import time
start = time.perf_counter()
import kohort
print(time.perf_counter() - start)
"""


class Row(NamedTuple):
    """Row of the table.

    ``reached`` is about kohort's median and about its ratio to Kafka. None means unknown.
    ``others`` is the percentage of the machine's cores that other processes took.
    """

    name: str
    unit: str
    values: dict[str, list[float]]
    aim: str
    reached: Callable[[float, float | None], bool | None]
    others: float

    def ratios(self) -> list[float]:
        """Return kohort's value divided by Kafka's for each round. Empty if they did not take
        turns.
        """
        ours, kafka = self.values[KOHORT], self.values.get(KAFKA, [])
        if len(ours) != len(kafka):
            return []
        return [a / b for a, b in zip(ours, kafka, strict=True)]


def serve(pipe: Connection, brokers: int) -> None:
    """Run a cluster in this process. Send its port, then its CPU seconds on each request."""
    from kohort.testing import Cluster

    with Cluster(brokers) as cluster:
        pipe.send(int(cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)[1]))
        while pipe.recv():
            pipe.send(time.process_time())


class KohortServer:
    """Cluster of kohort in a child process."""

    def __init__(self, brokers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, brokers), daemon=True)
        self._process.start()
        self.port: int = self._pipe.recv()

    def cpu_s(self) -> float:
        self._pipe.send(True)
        return float(self._pipe.recv())

    def stop(self) -> None:
        self._pipe.send(False)
        self._process.join()


def idle_cpu(servers: dict[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    """Return the percentage of one core that each takes. All are measured at the same time."""
    before = {name: cpu_s() for name, cpu_s in servers.items()}
    time.sleep(seconds)
    return {name: (cpu_s() - before[name]) / seconds * 100 for name, cpu_s in servers.items()}


def fresh(program: str, rounds: int) -> list[list[float]]:
    """Return the numbers that a program prints, a list for each number.

    The program runs in ``rounds`` processes, one after the other.
    """
    lines = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(rounds + 1)
    ]
    numbers = [[float(word) for word in line.stdout.split()] for line in lines[1:]]
    return [list(column) for column in zip(*numbers, strict=True)]


def interleaved(
    rounds: int, ways: Mapping[str, Callable[[], float]], name: str
) -> dict[str, list[float]]:
    """Return the values of each way, a number a round. The first round is dropped."""
    values: dict[str, list[float]] = {way: [] for way in ways}
    for number, way in turns(rounds, ways):
        value = ways[way]()
        print(f"  {name}, {way}: {value:.4g}{'' if number else ' (warm-up)'}", flush=True)
        if number:
            values[way].append(value)
    return values


def below(limit: float) -> Callable[[float, float | None], bool | None]:
    return lambda ours, _: ours < limit


def half(_: float, ratio: float | None) -> bool | None:
    """Return True if a rate is at least half of Kafka's. None without Kafka."""
    return None if ratio is None else ratio >= 0.5


def measure(args: argparse.Namespace, ports: dict[str, int], others: Others) -> list[Row]:
    """Return a row for each measurement of running brokers."""
    numbers = itertools.count()

    def produce(port: int) -> float:
        topic = f"produced-{next(numbers)}"
        _workloads.create_topic(port, topic)
        try:
            return _workloads.produce(port, topic, args.records)
        finally:
            _workloads.delete_topic(port, topic)

    def join(port: int) -> float:
        return _workloads.join_all(port, f"group-{next(numbers)}", args.members)

    stored = {}
    for name, port in ports.items():
        _workloads.create_topic(port, "stored")
        stored[name] = _workloads.load(port, "stored", args.size * 1_000_000)
    rows = []
    others.share()
    for limit, text in ((1 << 20, "1 MiB"), (8 << 20, "8 MiB")):
        name = f"fetch of {args.size} MB, {text} a fetch"
        ways = {
            way: partial(_workloads.fetch_all, port, "stored", stored[way], limit)
            for way, port in ports.items()
        }
        values = interleaved(args.rounds, ways, name)
        rows.append(Row(name, "MB/s", values, "half of Kafka's", half, others.share()))
    for port in ports.values():
        _workloads.delete_topic(port, "stored")
    name = f"{args.records:,} records of confluent-kafka"
    values = interleaved(args.rounds, {w: partial(produce, p) for w, p in ports.items()}, name)
    rows.append(Row(name, "records/s", values, "half of Kafka's", half, others.share()))
    name = f"{args.members} members join a group"
    values = interleaved(args.rounds, {w: partial(join, p) for w, p in ports.items()}, name)
    rows.append(Row(name, "s", values, "under 5 s", below(5), others.share()))
    return rows


def start_up(args: argparse.Namespace, others: Others) -> list[Row]:
    """Measure the time until kohort is started."""
    imported, first, second = ([1000 * v for v in column] for column in fresh(FRESH, args.rounds))
    taken = others.share()
    (package,) = ([1000 * v for v in column] for column in fresh(IMPORT, args.rounds))
    aim, none = ("30 ms", below(30)), ("", lambda *_: None)
    return [
        Row("start of one broker, the first in its process", "ms", {KOHORT: first}, *aim, taken),
        Row("start of one broker, from then on", "ms", {KOHORT: second}, *aim, taken),
        Row("import kohort.testing", "ms", {KOHORT: imported}, *none, taken),
        Row("import kohort", "ms", {KOHORT: package}, *none, others.share()),
    ]


def table(rows: list[Row]) -> str:
    """Return the medians in Markdown, with minimum and maximum in brackets."""
    lines = [
        f"| | unit | {KOHORT} | {KAFKA} {KAFKA_VERSION} | ratio | aim | | others |",
        "|---|---|---:|---:|---:|---|---|---:|",
    ]
    for row in rows:
        ratios = row.ratios()
        ratio = statistics.median(ratios) if ratios else None
        reached = row.reached(statistics.median(row.values[KOHORT]), ratio)
        cells = [
            row.name,
            row.unit,
            spread(row.values[KOHORT]),
            spread(row.values.get(KAFKA, [])),
            spread(ratios),
            row.aim,
            {True: "reached", False: "**not reached**", None: ""}[reached],
            f"{row.others:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(rows: list[Row]) -> str:
    """Return a sentence on whether the machine was quiet enough for the figures."""
    busy = [row for row in rows if row.others >= BUSY]
    if not busy:
        return f"The machine was quiet: others took at most {max(r.others for r in rows):.0f} %."
    return (
        f"**The machine was busy**: in {len(busy)} of {len(rows)} rows others took {BUSY} % or "
        f"more of its cores, up to {max(row.others for row in busy):.0f} %. Of those rows trust "
        "the ratios only, because the load affected both."
    )


def setting(args: argparse.Namespace) -> str:
    """Return the machine, the versions and the method."""
    software = "; ".join([hardware(), *versions("confluent-kafka", "anyio", java=True)])
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {software}.\n\n"
        f"Medians of {args.rounds} rounds, the least and the most in brackets; both take turns "
        "within a round, after one to warm up. A ratio is kohort's by Kafka's, of each round. "
        "Others: what other processes took of all cores meanwhile. Kafka's start is one run; its "
        "heap is 512 MB."
    )


def main() -> None:
    """Measure everything, print the table, and write it with ``--output``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100, help="MB to store and fetch")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of each idle measurement")
    parser.add_argument("--output", type=Path, help="file for the table, which is also printed")
    args = parser.parse_args()
    began = time.monotonic()
    head = setting(args)
    others = Others()
    rows = start_up(args, others)
    reason = missing_kafka()
    ours, three = KohortServer(1), KohortServer(3)
    ports = {KOHORT: ours.port}
    servers: dict[str, Callable[[], float]] = {KOHORT: three.cpu_s}
    with ExitStack() as stack:
        stack.callback(ours.stop)
        stack.callback(three.stop)
        if reason is None:
            theirs = stack.enter_context(kafka())
            start = time.perf_counter()
            theirs.start()
            rows[0].values[KAFKA] = [1000 * (time.perf_counter() - start)]
            ports[KAFKA] = theirs.port
            servers[KAFKA] = partial(cpu_of, theirs.pid)
        rows += measure(args, ports, others)
        rounds = [idle_cpu(servers, args.idle) for _ in range(args.rounds)]
        values = {name: [each[name] for each in rounds] for name in servers}
        name = "CPU of an idle cluster (kohort: 3 brokers, Kafka: 1)"
        rows.append(Row(name, "% of a core", values, "under 1 %", below(1), others.share()))
    title = "# The in-process cluster compared with Apache Kafka"
    text = f"{title}\n\n{head}\n{verdict(rows)}\n\n{table(rows)}\n"
    print(f"\n{text}\nmeasured in {time.monotonic() - began:.0f} s")
    if reason:
        print(f"Apache Kafka was not measured: {reason}")
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text)


if __name__ == "__main__":
    main()
