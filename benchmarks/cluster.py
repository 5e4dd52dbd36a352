"""In-process cluster compared with Apache Kafka, on the same machine and in the same run.

    python -m benchmarks.cluster [--rounds 5] [--size MB] [--records N] [--output FOLDER]

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
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

from benchmarks import _workloads as work
from benchmarks._kafka import FastKafka, node
from benchmarks._machine import Others, cpu_of, load_of
from benchmarks._program import parser, publish, run_command, setting
from benchmarks._rounds import collect, spread, table
from benchmarks._topics import Shape, fill, text
from tests.interop.brokers import Broker
from tests.support.jars import KAFKA_VERSION, missing_kafka

KOHORT, KAFKA = "kohort", "Apache Kafka"
STORED = Shape("stored", "1 KB, plain", 1000, text(1000), batches=(64,))
"""Topic to fetch. Its records with scale 1 have 1 MB."""
FRESH = """
import time
from kohort.testing import Cluster
start = time.perf_counter()
with Cluster():
    first = time.perf_counter()
again = time.perf_counter()
with Cluster():
    second = time.perf_counter()
print([first - start, second - again])
"""
Reached = Callable[[float, float | None], bool | None]


class Row(NamedTuple):
    """Row of the table.

    ``reached`` is about kohort's median and about its ratio to Kafka. None means unknown.
    ``others`` is the percentage of the machine's cores that other processes took.
    """

    name: str
    unit: str
    values: dict[str, list[float]]
    aim: str
    reached: Reached
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
    """Run a cluster in this process. Send its servers, then its CPU seconds on each request."""
    from kohort.testing import Cluster

    with Cluster(brokers) as cluster:
        pipe.send(cluster.bootstrap_servers)
        while pipe.recv():
            pipe.send(time.process_time())


class KohortServer:
    """Cluster of kohort in a child process."""

    def __init__(self, brokers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, brokers), daemon=True)
        self._process.start()
        self.bootstrap_servers: str = self._pipe.recv()

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


def fresh(rounds: int) -> list[list[float]]:
    """Return the milliseconds that ``FRESH`` prints in new processes, a list for each of them."""
    found = [run_command([sys.executable, "-c", FRESH]) for _ in range(rounds + 1)]
    return [[1000 * seconds for seconds in column] for column in zip(*found[1:], strict=True)]


def below(limit: float) -> Reached:
    return lambda ours, _: ours < limit


def half(_: float, ratio: float | None) -> bool | None:
    """Return True if a rate is at least half of Kafka's. None without Kafka."""
    return None if ratio is None else ratio >= 0.5


def measure(args: argparse.Namespace, servers: dict[str, str]) -> list[Row]:
    """Return a row for each measurement of running brokers."""
    numbers = itertools.count()
    brokers = {way: Broker(address) for way, address in servers.items()}

    def fetch(limit: int, way: str) -> float:
        return work.fetch_all(servers[way], STORED.name, limit)

    def produce(way: str) -> float:
        topic = brokers[way].create_topic(f"produced-{next(numbers)}")
        try:
            return work.produce(servers[way], topic, args.records)
        finally:
            brokers[way].delete_topic(topic)

    def join(way: str) -> float:
        group = f"group-{next(numbers)}"
        work.await_coordinator(servers[way], group)
        return work.join_all(servers[way], group, args.members)

    def row(name: str, unit: str, run: Callable[[str], float], aim: str, reached: Reached) -> Row:
        found, shares = collect(args.rounds, servers, lambda way: {name: run(way)}, warm_up=True)
        values = {way: found[way, name] for way in servers}
        return Row(name, unit, values, aim, reached, statistics.median(shares))

    for address in servers.values():
        fill(address, STORED, args.size, partitions=1)
    rows = []
    for limit, size in ((1 << 20, "1 MiB"), (8 << 20, "8 MiB")):
        name = f"fetch of {args.size} MB, {size} a fetch"
        rows.append(row(name, "MB/s", partial(fetch, limit), "half of Kafka's", half))
    for broker in brokers.values():
        broker.delete_topic(STORED.name)
    name = f"{args.records:,} records of confluent-kafka"
    rows.append(row(name, "records/s", produce, "half of Kafka's", half))
    name = f"{args.members} members join a group"
    rows.append(row(name, "s", join, "under 5 s", below(5)))
    return rows


def start_up(rounds: int, others: Others) -> list[Row]:
    """Measure the time until kohort is started."""
    first, second = fresh(rounds)
    aim, taken = ("30 ms", below(30)), others.share()
    return [
        Row("start of one broker, the first in its process", "ms", {KOHORT: first}, *aim, taken),
        Row("start of one broker, from then on", "ms", {KOHORT: second}, *aim, taken),
    ]


def cells(row: Row) -> list[str]:
    """Return the medians of a row, with minimum and maximum in brackets."""
    ratios = row.ratios()
    ratio = statistics.median(ratios) if ratios else None
    reached = row.reached(statistics.median(row.values[KOHORT]), ratio)
    return [
        row.name,
        row.unit,
        spread(row.values[KOHORT]),
        spread(row.values.get(KAFKA, [])),
        spread(ratios),
        row.aim,
        {True: "reached", False: "**not reached**", None: ""}[reached],
        f"{row.others:.0f} %",
    ]


def main() -> None:
    """Measure everything, and publish the table."""
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--size", type=int, default=100, help="MB to store and fetch")
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--members", type=int, default=500)
    arguments.add_argument("--idle", type=float, default=5.0, help="seconds of idle measurements")
    args = arguments.parse_args()
    others = Others()
    rows = start_up(args.rounds, others)
    reason = missing_kafka()
    ours, three = KohortServer(1), KohortServer(3)
    servers = {KOHORT: ours.bootstrap_servers}
    idle: dict[str, Callable[[], float]] = {KOHORT: three.cpu_s}
    with ExitStack() as stack:
        stack.callback(ours.stop)
        stack.callback(three.stop)
        if reason is None:
            theirs = stack.enter_context(node(FastKafka))
            start = time.perf_counter()
            theirs.start()
            rows[0].values[KAFKA] = [1000 * (time.perf_counter() - start)]
            servers[KAFKA] = theirs.bootstrap_servers
            idle[KAFKA] = partial(cpu_of, theirs.pid)
        rows += measure(args, servers)
        rounds = [idle_cpu(idle, args.idle) for _ in range(args.rounds)]
        values = {name: [each[name] for each in rounds] for name in idle}
        name = "CPU of an idle cluster (kohort: 3 brokers, Kafka: 1)"
        rows.append(Row(name, "% of a core", values, "under 1 %", below(1), others.share()))
    columns = "", "unit", KOHORT, f"{KAFKA} {KAFKA_VERSION}", "ratio", "aim", "", "others"
    publish(
        args.output,
        "cluster",
        "The in-process cluster compared with Apache Kafka",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {setting('confluent-kafka', 'anyio')}",
        f"Medians of {args.rounds} rounds, the least and the most in brackets; both take turns "
        "within a round, after one to warm up. A ratio is kohort's by Kafka's, of each round. "
        "Others: what other processes took of all cores meanwhile. Kafka's start is one run; its "
        f"heap is 512 MB. {load_of([row.others for row in rows])}",
        table(columns, "llrrrllr", map(cells, rows)),
        f"Apache Kafka was not measured: {reason}" if reason else "",
    )


if __name__ == "__main__":
    main()
