"""Rates of reading from a broker far away, and over a slow line.

    python -m benchmarks.distant [--rounds 3] [--short] [--output FILE]

Each client reads records of 1 KB from 32 partitions on Apache Kafka, as the only member of a group,
in a separate process. The clocks start with the first records and include the time in which a
client adapts. A proxy in a further process delays all bytes, and paces those of the broker. With
"send buffer", one connection has 165,000 bytes on its way at most. That is what TCP delivers with
the default of Apache Kafka, socket.send.buffer.bytes=102400. The clients take turns within each
round. The CPU time is that of the client.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks._goals import verdict
from benchmarks._kafka import FastKafka
from benchmarks._machine import hardware, versions
from benchmarks._names import ARROW, CONFLUENT, RECORDS
from benchmarks._reading import Reading
from benchmarks._rounds import turns
from tests.support.jars import KAFKA_VERSION, jars, missing_kafka
from tests.support.net import free_ports
from tests.support.topics import create_topic

RECORD_BYTES = 1000
PARTITIONS = 32
LONGEST_S = 240.0
WIDE = 125_000_000
SEND_BUFFER = 165_000


class Way(NamedTuple):
    """Line with its round trip in ms, its bytes a second and the bytes of one connection."""

    name: str
    round_trip_ms: int
    rate: int
    window: int = 0


BUFFERED = Way("150 ms, send buffer", 150, WIDE, SEND_BUFFER)
NEAR = Way("50 ms, 125 MB/s", 50, WIDE)
FAR = Way("150 ms, 125 MB/s", 150, WIDE)
FARTHEST = Way("300 ms, 125 MB/s", 300, WIDE)
SLOW = Way("50 ms, 1 MB/s", 50, 1_000_000)


class Case(NamedTuple):
    """Line, client, and thousands of records to read."""

    way: Way
    client: str
    thousands: int


CASES = (
    Case(BUFFERED, ARROW, 400),
    Case(BUFFERED, CONFLUENT, 8),
    *(Case(way, client, 400) for way in (NEAR, FAR, FARTHEST) for client in (ARROW, RECORDS)),
    Case(FAR, CONFLUENT, 400),
    Case(SLOW, ARROW, 12),
    Case(SLOW, CONFLUENT, 12),
)


class Goal(NamedTuple):
    """Goal for the MB/s of ``case``."""

    case: Case
    goal: float
    floor: float


GOALS = (
    Goal(CASES[0], 24.0, 11.0),
    Goal(CASES[2], 119.0, 80.0),
    Goal(CASES[4], 119.0, 80.0),
    Goal(CASES[6], 106.0, 60.0),
    Goal(CASES[9], 0.9, 0.8),
)


class Measured(NamedTuple):
    """Rate in MB/s, CPU time of a record in microseconds, and peak memory in MB."""

    mb_per_s: float
    cpu_us: float
    peak_mb: float


@contextmanager
def line_to(broker: int, port: int, way: Way) -> Iterator[None]:
    """Run the proxy within the block."""
    words = [port, broker, way.round_trip_ms, way.rate, way.window]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks._line", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the proxy did not start")
            yield
        finally:
            process.kill()


def measure(case: Case, broker: int, port: int, topic: str) -> Measured:
    """Read over the line of a case."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    words = [case.client, f"127.0.0.1:{port}", topic, group, str(1000 * case.thousands)]
    with line_to(broker, port, case.way):
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks._read", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=LONGEST_S,
            cwd=Path(__file__).parents[1],
        ).stdout
    reading = Reading(**json.loads(output))
    return Measured(reading.rate * RECORD_BYTES / 1e6, reading.cpu_us, reading.peak_mb)


def fill(servers: str, thousands: int) -> str:
    """Create a topic with at least this number of records, in turn for each partition."""
    topic = create_topic(servers, f"distant-{uuid.uuid4().hex[:8]}", PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 200_000})
    value = bytes(range(250)) * (RECORD_BYTES // 250)
    for number in range(1000 * thousands):
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(LONGEST_S)
    return topic


def table(done: dict[Case, list[Measured]]) -> str:
    """Return the medians of the rounds as Markdown."""
    lines = [
        "| line | client | MB/s | least and most of a round | share | CPU us/record | peak MB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case, rounds in done.items():
        rates = [each.mb_per_s for each in rounds]
        rate = statistics.median(rates)
        cells = [
            case.way.name,
            case.client,
            f"{rate:.2f}",
            f"{min(rates):.2f} to {max(rates):.2f}",
            f"{rate * 1e6 / case.way.rate:.2f}",
            f"{statistics.median(each.cpu_us for each in rounds):.2f}",
            f"{max(each.peak_mb for each in rounds):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def goals(done: dict[Case, list[Measured]]) -> str:
    """Return the goals and the figures as Markdown."""
    lines = ["| MB/s of kohort | figure | goal | never below | |", "|---|---:|---:|---:|---|"]
    for case, goal, floor in GOALS:
        if rounds := done.get(case):
            value = statistics.median(each.mb_per_s for each in rounds)
            reached = verdict(value, goal, floor)
            lines.append(f"| {case.way.name} | {value:.2f} | {goal:g} | {floor:g} | {reached} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="one round")
    parser.add_argument("--lines", help="only lines with this text in their name", default="")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    cases = [case for case in CASES if args.lines in case.way.name]
    rounds = 1 if args.short else args.rounds
    done: dict[Case, list[Measured]] = {case: [] for case in cases}
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        listener = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        server = FastKafka(jars(), Path(folder), listener)
        server.start()
        try:
            with line_to(server.port, port, Way("direct", 0, 1 << 40)):
                topic = fill(f"127.0.0.1:{port}", max(case.thousands for case in cases))
            for number, case in turns(rounds, cases, warm_up=False):
                measured = measure(case, server.port, port, topic)
                done[case].append(measured)
                print(
                    f"round {number} of {rounds}: {case.way.name}, {case.client}: "
                    f"{measured.mb_per_s:.2f} MB/s",
                    flush=True,
                )
        finally:
            server.kill()
    setting = "; ".join([hardware(), *versions("anyio", "confluent-kafka", java=True)])
    text = f"{setting}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n{table(done)}\n"
    text = f"{text}\n{goals(done)}\n"
    print(f"\n{text}")
    if args.output is not None:
        about = __doc__.split("\n\n")[2]
        args.output.write_text(f"# A broker far away\n\n{about}\n\n{text}")


if __name__ == "__main__":
    main()
