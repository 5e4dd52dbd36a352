"""Cost of many assigned partitions when one of them has records, compared with other clients.

    python -m benchmarks.partitions [--rounds 5] [--short] [--output FOLDER]

Measurements run on Apache Kafka. The first ones are CPU and latency of a reader of 1,000 partitions
while one of them gets 90 records a second. The others are the rate at which a backlog in one of 10,
1,000 and 2,000 partitions is read. Each reading is a separate process, and the clients take turns
within each round, so that load on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks._consumers import MODULES, OURS
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._partitions import BACKLOG, BUSY, Result
from benchmarks._rounds import spread, turns
from tests.support.jars import KAFKA_VERSION, missing_kafka
from tests.support.topics import create_topic

RESULTS = Path(__file__).parent / "results"
RATE = 90
BUSY_PARTITIONS = 1000
BACKLOGS = (10, 1000, 2000)
FEWEST = BACKLOGS[0]
VALUE_BYTES = 100
LIMIT_S = 120.0
ROWS = tuple(MODULES)


class Goal(NamedTuple):
    """Goal of a figure and its floor."""

    aim: float
    least: float

    def verdict(self, value: float, *, up: bool) -> str:
        """Return the result for a value. With ``up`` higher is better."""
        sign = 1 if up else -1
        if sign * value >= sign * self.aim:
            return "yes"
        return "within the bound" if sign * value >= sign * self.least else "no"


CPU_GOAL, LATENCY_GOAL = Goal(15, 25), Goal(11, 15)
BACKLOG_GOALS = {1000: Goal(0.8, 0.6), 2000: Goal(0.7, 0.5)}


class Case(NamedTuple):
    """One client, one way to read, and the number of assigned partitions."""

    client: str
    way: str
    partitions: int


Results = dict[Case, list[Result]]


def produce_at_rate(producer: Producer, topic: str, count: int) -> None:
    """Send records to the first partition at a fixed rate. The value is the clock in ns."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        producer.produce(topic, b"%d" % time.time_ns(), partition=0)
        producer.poll(0)
    producer.flush(LIMIT_S)


def fill(servers: str, topic: str, records: int) -> None:
    """Produce a backlog into the first partition."""
    options = {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 196_608}
    producer = Producer(options | {"queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        producer.produce(topic, b"v" * VALUE_BYTES, b"k%07d" % number, partition=0)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(LIMIT_S):
        raise RuntimeError(f"{topic}: not all records were written")


def read(case: Case, servers: str, topic: str, records: int, producer: Producer) -> Result:
    """Read with a client in a separate process."""
    arguments = case.client, case.way, servers, topic, str(case.partitions), str(records)
    words = [sys.executable, "-m", "benchmarks._partitions", *arguments]
    folder = Path(__file__).parents[1]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if case.way == BUSY:
                time.sleep(1.0)
                # The topic is read from its beginning, and has records of earlier readings.
                if process.stdout.readline().strip() != "ready":
                    raise RuntimeError(f"{case.client} did not start")
                produce_at_rate(producer, topic, records)
            out, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    return Result(**json.loads(out.splitlines()[-1]))


def measure(servers: str, args: argparse.Namespace) -> tuple[Results, list[float]]:
    """Return the results of all cases, and the load of other processes at each of them."""
    cases = [Case(client, BUSY, BUSY_PARTITIONS) for client in args.clients]
    cases += [Case(client, BACKLOG, number) for number in BACKLOGS for client in args.clients]
    cases = [case for case in cases if args.way in (None, case.way)]
    for number in BACKLOGS if args.way != BUSY else ():
        print(f"filling a topic of {number} partitions", flush=True)
        fill(servers, create_topic(servers, f"backlog-{number}", number), args.records)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    results: Results = defaultdict(list)
    others, shares = Others(), []
    topics = 0
    for number, case in turns(args.rounds, cases, warm_up=False):
        if case.way == BUSY:
            topics += 1
            topic = create_topic(servers, f"busy-{topics}", case.partitions)
            producer.produce(topic, b"0", partition=0)
            producer.flush(LIMIT_S)
            records = args.seconds * RATE
        else:
            topic, records = f"backlog-{case.partitions}", args.records
        others.share()
        result = read(case, servers, topic, records, producer)
        shares.append(others.share())
        results[case].append(result)
        print(
            f"round {number} of {args.rounds}: {case.client}, {case.way}, {case.partitions}: "
            f"{result.records / result.seconds:,.0f}/s, "
            f"{100 * result.cpu_s / result.seconds:.0f} % CPU, {result.p50_ms:.1f} ms; "
            f"others {shares[-1]:.0f} %",
            flush=True,
        )
    return results, shares


def busy_table(results: Results) -> str:
    """Return CPU and latency of the readers as Markdown. The goals are for kohort only."""
    lines = ["| client | CPU % | p50 ms | CPU reached | p50 reached |", "|---|---:|---:|---|---|"]
    for client in ROWS:
        if done := results.get(Case(client, BUSY, BUSY_PARTITIONS)):
            cpu = [100 * result.cpu_s / result.seconds for result in done]
            p50 = [result.p50_ms for result in done]
            reached = ["", ""]
            if client in OURS:
                reached = [
                    CPU_GOAL.verdict(statistics.median(cpu), up=False),
                    LATENCY_GOAL.verdict(statistics.median(p50), up=False),
                ]
            lines.append(f"| {' | '.join([client, spread(cpu), spread(p50), *reached])} |")
    return "\n".join(lines)


def backlog_table(results: Results) -> str:
    """Return rates, and their ratios to the rate with the fewest partitions in the same round."""
    head = [f"1 of {number:,}: thousand/s" for number in BACKLOGS]
    head += [f"{number:,} : {FEWEST}" for number in BACKLOGS[1:]] + ["reached"]
    lines = [f"| client | {' | '.join(head)} |", f"|---|{'---:|' * 5}---|"]
    for client in ROWS:
        rates = {
            number: [result.records / result.seconds / 1000 for result in done]
            for number in BACKLOGS
            if (done := results.get(Case(client, BACKLOG, number)))
        }
        if len(rates) < len(BACKLOGS):
            continue
        cells = [spread(rates[number]) for number in BACKLOGS]
        verdicts = []
        for number, goal in BACKLOG_GOALS.items():
            ratios = [a / b for a, b in zip(rates[number], rates[FEWEST], strict=True)]
            cells.append(spread(ratios))
            verdicts.append(goal.verdict(statistics.median(ratios), up=True))
        cells.append(", ".join(verdicts) if client in OURS else "")
        lines.append(f"| {' | '.join([client, *cells])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="5, or 1 with --short")
    parser.add_argument("--short", action="store_true", help="one short round")
    parser.add_argument(
        "--clients", type=lambda text: text.split(";"), default=list(ROWS), help="a;b;c"
    )
    parser.add_argument("--way", choices=[BUSY, BACKLOG], help="one way only, both by default")
    parser.add_argument("--output", type=Path, help="folder for the tables")
    args = parser.parse_args()
    if unknown := set(args.clients).difference(ROWS):
        parser.error(f"unknown: {unknown}; there are {', '.join(ROWS)}")
    args.rounds = args.rounds or (1 if args.short else 5)
    args.seconds, args.records = (3, 500_000) if args.short else (6, 2_000_000)
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    with kafka() as server:
        server.start()
        results, shares = measure(server.bootstrap_servers, args)
    packages = "confluent-kafka", "aiokafka", "kafka-python"
    software = [hardware(), *versions(*packages, java=True)]
    text = (
        f"# Many partitions, one of them with records\n\n{'; '.join(software)}; Apache Kafka "
        f"{KAFKA_VERSION} on the same machine. Medians of {args.rounds} rounds, least and most in "
        f"brackets. Other processes took {statistics.median(shares):.0f} % of the cores (median)."
        f"\n\n## 1 of {BUSY_PARTITIONS:,} partitions gets {RATE} records a second\n\n"
        f"{busy_table(results)}\n\n## A backlog in one partition\n\n{args.records:,} records of "
        f"{VALUE_BYTES} bytes.\n\n{backlog_table(results)}\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "partitions.md").write_text(text)


if __name__ == "__main__":
    main()
