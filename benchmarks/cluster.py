"""The in-process cluster beside Apache Kafka, on the same machine and in the same run.

    python -m benchmarks.cluster [--rounds 5] [--size MB] [--records N] [--output FILE]

Both run in processes of their own, and the clients in this one. The two take turns within each
round, now one first and now the other, so that load on the machine falls on both. The first round
warms up and is not counted. Without Java, kohort is measured alone.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from benchmarks import _workloads
from tests.support.jars import KAFKA_VERSION, jars, missing_kafka
from tests.support.kafka_server import KafkaServer
from tests.support.needs import java

KOHORT, KAFKA = "kohort", "Apache Kafka"
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


class FastKafka(KafkaServer):
    """With all of the JVM's compilers; the tests do without, for the sake of a quick start."""

    def _java(self, main_class: str, *args: object, level: str = "warn") -> list[str]:
        command = super()._java(main_class, *args, level=level)
        return [word for word in command if not word.startswith("-XX:TieredStopAtLevel")]


class Row(NamedTuple):
    """``aim``: said of kohort's median, given Kafka's; None where Kafka is only beside it."""

    name: str
    unit: str
    larger_is_better: bool
    values: dict[str, list[float]]
    aim: str
    reached: Callable[[float, float | None], bool | None]


def serve(pipe: Connection, brokers: int) -> None:
    """A cluster in this process: its port, then its CPU seconds whenever asked, until the end."""
    from kohort.testing import Cluster

    with Cluster(brokers) as cluster:
        pipe.send(int(cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)[1]))
        while pipe.recv():
            pipe.send(time.process_time())


class KohortServer:
    """A cluster of kohort's in a child process."""

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


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of what it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_of(int(child)) for child in children)


def idle_cpu(cpu_s: Callable[[], float], seconds: float) -> float:
    """Percent of one core."""
    before = cpu_s()
    time.sleep(seconds)
    return (cpu_s() - before) / seconds * 100


def fresh(program: str, rounds: int) -> list[list[float]]:
    """The numbers that a program prints, of so many processes; a list for each number."""
    lines = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(rounds + 1)
    ]
    numbers = [[float(word) for word in line.stdout.split()] for line in lines[1:]]
    return [list(column) for column in zip(*numbers, strict=True)]


def interleaved(
    rounds: int, ways: dict[str, Callable[[], float]], name: str
) -> dict[str, list[float]]:
    """Each way once a round, in changing order; the first round is dropped."""
    values: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        order = list(ways)[:: 1 if turn % 2 else -1]
        for way in order:
            value = ways[way]()
            print(f"  {name}, {way}: {value:.4g}{'' if turn else ' (warm-up)'}", flush=True)
            if turn:
                values[way].append(value)
    return values


def below(limit: float) -> Callable[[float, float | None], bool | None]:
    return lambda ours, _: ours < limit


def half(ours: float, kafka: float | None) -> bool | None:
    """Whether a rate is at least half of Kafka's; None without Kafka."""
    return None if kafka is None else ours >= kafka / 2


def measure(args: argparse.Namespace, ports: dict[str, int]) -> list[Row]:
    """What is asked of running brokers, a row each."""
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
    for limit, text in ((1 << 20, "1 MiB"), (8 << 20, "8 MiB")):
        name = f"fetch of {args.size} MB, {text} a fetch"
        ways = {
            way: partial(_workloads.fetch_all, port, "stored", stored[way], limit)
            for way, port in ports.items()
        }
        values = interleaved(args.rounds, ways, name)
        rows.append(Row(name, "MB/s", True, values, "half of Kafka's", half))
    for port in ports.values():
        _workloads.delete_topic(port, "stored")
    name = f"{args.records:,} records of confluent-kafka"
    values = interleaved(args.rounds, {w: partial(produce, p) for w, p in ports.items()}, name)
    rows.append(Row(name, "records/s", True, values, "half of Kafka's", half))
    name = f"{args.members} members join a group"
    values = interleaved(args.rounds, {w: partial(join, p) for w, p in ports.items()}, name)
    rows.append(Row(name, "s", False, values, "under 5 s", below(5)))
    return rows


def start_up(args: argparse.Namespace) -> list[Row]:
    """How long kohort takes to be there."""
    imported, first, second = ([1000 * v for v in column] for column in fresh(FRESH, args.rounds))
    (package,) = ([1000 * v for v in column] for column in fresh(IMPORT, args.rounds))
    aim = "30 ms", below(30)
    none = "", lambda *_: None
    return [
        Row("start of one broker, the first in its process", "ms", False, {KOHORT: first}, *aim),
        Row("start of one broker, from then on", "ms", False, {KOHORT: second}, *aim),
        Row("import kohort.testing", "ms", False, {KOHORT: imported}, *none),
        Row("import kohort", "ms", False, {KOHORT: package}, *none),
    ]


def table(rows: list[Row]) -> str:
    """Markdown; median, and the best in brackets."""
    lines = [
        f"| | unit | {KOHORT} | {KAFKA} {KAFKA_VERSION} | aim | |",
        "|---|---|---:|---:|---|---|",
    ]
    for row in rows:
        cells = []
        for way in (KOHORT, KAFKA):
            values = row.values.get(way)
            best = max if row.larger_is_better else min
            cells.append(
                f"{_short(statistics.median(values))} ({_short(best(values))})" if values else ""
            )
        ours = statistics.median(row.values[KOHORT])
        kafka = row.values.get(KAFKA)
        reached = row.reached(ours, statistics.median(kafka) if kafka else None)
        ratio = (
            f"{ours / statistics.median(kafka):.2f} of Kafka's, "
            if row.aim.startswith("half") and kafka
            else ""
        )
        word = {True: "reached", False: "**not reached**", None: ""}[reached]
        lines.append(
            f"| {row.name} | {row.unit} | {' | '.join(cells)} | {row.aim} | {ratio}{word} |"
        )
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def setting(args: argparse.Namespace) -> str:
    """The machine, the versions and how it was measured."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = _output("git", "rev-parse", "--short", "HEAD")
    runtime = _output(java() or "java", "-version").splitlines() if shutil.which("java") else []
    versions = [
        f"kohort {importlib.metadata.version('kohort')} ({commit})",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"confluent-kafka {importlib.metadata.version('confluent-kafka')}",
        f"anyio {importlib.metadata.version('anyio')}",
        *runtime[:1],
    ]
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {cpu[1] if cpu else platform.processor()}, "
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}; "
        f"{'; '.join(versions)}. Load of the machine at the start: {load}.\n\n"
        f"Median of {args.rounds} runs, the best one in brackets. Interleaved; one warm-up before. "
        "Kafka's start is one run; its heap is 512 MB."
    )


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()


def main() -> None:
    """Measure everything, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100, help="MB that are stored and fetched")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of each look at idleness")
    parser.add_argument("--output", type=Path, help="where the table goes, besides the screen")
    args = parser.parse_args()
    head = setting(args)
    rows = start_up(args)
    reason = missing_kafka()
    ours, three = KohortServer(1), KohortServer(3)
    ports = {KOHORT: ours.port}
    idle: dict[str, Callable[[], float]] = {KOHORT: partial(idle_cpu, three.cpu_s, args.idle)}
    with tempfile.TemporaryDirectory() as folder:
        kafka = None if reason else FastKafka(jars(), Path(folder))
        try:
            if kafka is not None:
                start = time.perf_counter()
                kafka.start()
                for row in rows[:2]:
                    row.values[KAFKA] = [1000 * (time.perf_counter() - start)]
                    break
                ports[KAFKA] = kafka.port
                process = kafka._process
                assert process is not None
                idle[KAFKA] = partial(idle_cpu, partial(cpu_of, process.pid), args.idle)
            rows += measure(args, ports)
            name = "CPU of an idle cluster (kohort: 3 brokers, Kafka: 1)"
            values = interleaved(args.rounds, idle, name)
            rows.append(Row(name, "% of a core", False, values, "under 1 %", below(1)))
        finally:
            if kafka is not None:
                kafka.kill()
            ours.stop()
            three.stop()
    text = f"# The in-process cluster beside Apache Kafka\n\n{head}\n\n{table(rows)}\n"
    print(f"\n{text}")
    if reason:
        print(f"Apache Kafka was not measured: {reason}")
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text)


if __name__ == "__main__":
    main()
