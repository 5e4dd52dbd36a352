"""Cost and latency of records that arrive at a moderate rate, compared with other clients.

    python -m benchmarks.moderate [--rounds 3] [--short] [--output FILE]

A producer with a linger of 5 ms writes 100 to 10,000 records a second. They go into 12 partitions
of a topic on Apache Kafka. Each client reads as the only member of a group, in a separate process,
with its default options. The clients take turns within each round. CPU is user and system time of
the process, divided by the records. Wake-ups are the times that a thread waited and was woken. The
latency of a record is the time from its produce() to the return of the call with it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks import _moderate as ways
from benchmarks._clients import COMPILED_ONCE, NO_SPINNING
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._moderate import READERS, STAMP_BYTES, Moderate
from benchmarks._rounds import spread, turns
from tests.support.jars import KAFKA_VERSION, missing_kafka
from tests.support.topics import create_topic

PARTITIONS = 12
LINGER_MS = 5
TICK_S = 0.001
"""Least seconds between two groups of records of the producer."""
LIMIT_S = 60.0


class Load(NamedTuple):
    """Records a second, and bytes of each value."""

    rate: int
    size: int

    @property
    def title(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} KB"
        return f"{self.rate:,} records/s of {size}"


BUSY = Load(10_000, 100)
LOADS = (Load(100, 100), Load(1000, 100), BUSY, Load(10_000, 1000))
Results = dict[tuple[Load, str], list[Moderate]]
"""Results of each load and way, one a round."""


class Goal(NamedTuple):
    """Goal of a figure of a way, or of its ratio to that of ``over``. Less is better."""

    text: str
    load: Load
    way: str
    over: str | None
    figure: Callable[[Moderate], float]
    goal: float
    floor: float


def cpu_us(result: Moderate) -> float:
    """Return the CPU of a record in microseconds."""
    return result.cpu_s / result.records * 1e6


def wakeups(result: Moderate) -> float:
    """Return the wake-ups a second."""
    return result.wakeups / result.seconds


def p50(result: Moderate) -> float:
    """Return the median latency in ms."""
    return result.p50_ms


def _goals() -> Iterator[Goal]:
    for way in (ways.POLL, ways.ASYNC_POLL):
        yield Goal(f"CPU of {way}, us a record", BUSY, way, None, cpu_us, 12, 18)
        yield Goal(f"CPU of {way} / confluent-kafka", BUSY, way, ways.CONSUME, cpu_us, 0.7, 1.0)
        yield Goal(f"p50 of {way}, ms", BUSY, way, None, p50, 10, 15)
        yield Goal(f"wake-ups of {way} a second", BUSY, way, None, wakeups, 300, 600)
        for load in LOADS[:2]:
            text = f"CPU of {way} / confluent-kafka"
            yield Goal(text, load, way, ways.CONSUME, cpu_us, 1.2, 1.5)


@contextmanager
def producing(servers: str, topic: str, load: Load) -> Iterator[None]:
    """Produce at this load, evenly over the partitions, during the block."""
    ended = threading.Event()
    options = {"bootstrap.servers": servers, "linger.ms": LINGER_MS, "acks": 1}
    producer = Producer(options)
    rest = b"v" * (load.size - STAMP_BYTES)

    def run() -> None:
        began, number = time.monotonic(), 0
        while not ended.wait(max(TICK_S, began + number / load.rate - time.monotonic())):
            due = int((time.monotonic() - began) * load.rate)
            while number <= due:
                value = time.monotonic_ns().to_bytes(STAMP_BYTES, "big") + rest
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                except BufferError:  # the broker is slower
                    producer.poll(TICK_S)
                    continue
                number += 1
                producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(LIMIT_S)


def read(way: str, servers: str, topic: str, seconds: float) -> Moderate:
    """Read with a client in a separate process, while records are produced."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    words = [sys.executable, "-m", "benchmarks._moderate", way, servers, topic, group, str(seconds)]
    done = subprocess.run(
        words,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **COMPILED_ONCE, **NO_SPINNING},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr[-2000:]}")
    return Moderate(**json.loads(done.stdout.splitlines()[-1]))


def table(results: Results, load: Load) -> str:
    """Return the medians, with minimum and maximum of the rounds, as Markdown."""
    lines = [
        "| client | CPU us/record | wake-ups/s | records a call | p50 ms | p99 ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for way in READERS:
        if done := results.get((load, way)):
            cells = [
                spread([cpu_us(each) for each in done]),
                spread([wakeups(each) for each in done]),
                f"{statistics.median(each.records / each.calls for each in done):.3g}",
                spread([each.p50_ms for each in done]),
                spread([each.p99_ms for each in done]),
            ]
            lines.append(f"| {' | '.join([way, *cells])} |")
    return "\n".join(lines)


def goals(results: Results) -> str:
    """Return the goals and the figures as Markdown."""
    lines = ["| load | figure | value | goal | never above | |", "|---|---|---:|---:|---:|---|"]
    for text, load, way, over, figure, goal, floor in _goals():
        ours, theirs = results.get((load, way)), results.get((load, over or way))
        if ours and theirs:
            value = statistics.median(map(figure, ours))
            if over is not None:
                value /= statistics.median(map(figure, theirs))
            cells = load.title, text, f"{value:.3g}", f"{goal:g}", f"{floor:g}"
            lines.append(f"| {' | '.join(cells)} | {verdict(value, goal, floor)} |")
    return "\n".join(lines)


def measure(servers: str, args: argparse.Namespace) -> tuple[Results, list[float]]:
    """Return the results, and the load of other processes at each of them."""
    results: Results = defaultdict(list)
    others, shares = Others(), []
    for load in args.loads:
        topic = create_topic(servers, f"moderate-{load.rate}-{load.size}", PARTITIONS)
        with producing(servers, topic, load):
            for number, way in turns(args.rounds, args.ways, warm_up=False):
                others.share()
                result = read(way, servers, topic, args.seconds)
                shares.append(others.share())
                results[load, way].append(result)
                print(
                    f"round {number} of {args.rounds}, {load.title}: {way}: "
                    f"{cpu_us(result):.1f} us, {wakeups(result):.0f} wake-ups/s, "
                    f"p50 {result.p50_ms:.1f} ms, p99 {result.p99_ms:.1f} ms",
                    flush=True,
                )
    return results, shares


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="3, or 1 with --short")
    parser.add_argument("--seconds", type=float, help="5, or 2 with --short")
    parser.add_argument("--short", action="store_true", help="one short round")
    parser.add_argument("--servers", help="measure on these instead of starting Apache Kafka")
    parser.add_argument(
        "--ways", type=lambda text: text.split(";"), default=list(READERS), help="a;b;c"
    )
    parser.add_argument("--rates", type=lambda text: [*map(int, text.split(","))], help="a,b,c")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if unknown := set(args.ways).difference(READERS):
        parser.error(f"unknown: {unknown}; there are {', '.join(READERS)}")
    args.rounds = args.rounds or (1 if args.short else 3)
    args.seconds = args.seconds or (2.0 if args.short else 5.0)
    args.loads = [load for load in LOADS if args.rates is None or load.rate in args.rates]
    return args


def main() -> None:
    args = arguments()
    if args.servers is not None:
        results, shares = measure(args.servers, args)
    elif (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    else:
        with kafka() as server:
            server.start()
            results, shares = measure(server.bootstrap_servers, args)
    packages = "anyio", "pyarrow", "confluent-kafka", "aiokafka"
    setting = "; ".join([hardware(), *versions(*packages, java=True)])
    about = (__doc__ or "").split("\n\n")[2]
    parts = [
        f"# Records at a moderate rate\n\n{about}",
        f"{setting}; Apache Kafka {KAFKA_VERSION} on the same machine. Medians of {args.rounds} "
        f"rounds of {args.seconds:g} s, least and most in brackets. Other processes, the broker "
        f"and the producer included, took {statistics.median(shares):.0f} % of the cores (median).",
        *(f"## {load.title}\n\n{table(results, load)}" for load in args.loads),
        f"## Goals\n\n{goals(results)}\n",
    ]
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if args.output is not None:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
