"""Time from the producer's send to the return of the consumer's call.

    python -m benchmarks.latency [--rounds 5] [--records 100] [--short] [--output FILE]

Each client reads a topic of one partition on Apache Kafka, as the only member of a group, in a
separate process. A record is produced every 20 to 40 ms, so the topic is idle before each of them.
"wait" is a call that waits for a record. "spin" is poll(timeout_ms=0) in a loop, without any pause.
The clients take turns within each round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from benchmarks._consumers import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, KOHORT, KOHORT_ASYNC
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import hardware, versions
from benchmarks._receiving import Received
from benchmarks._rounds import turns
from benchmarks._workloads import Link
from kohort.protocol.messages import ProduceRequest
from kohort.records import NewRecord, encode_batch
from tests.support.jars import KAFKA_VERSION, missing_kafka

GAP_S = 0.02, 0.04
READY_S = 60.0
PRODUCE_VERSION = 8
WAIT, SPIN = "wait", "spin"
SHORT_ROUNDS, SHORT_RECORDS = 3, 60


class Case(NamedTuple):
    """Client and its way to poll."""

    client: str
    how: str


CASES = (
    Case(KOHORT, WAIT),
    Case(CONFLUENT, WAIT),
    Case(KAFKA_PYTHON, WAIT),
    Case(KOHORT_ASYNC, WAIT),
    Case(AIOKAFKA, WAIT),
    Case(KOHORT, SPIN),
    Case(CONFLUENT, SPIN),
    Case(KAFKA_PYTHON, SPIN),
)


class Latency(NamedTuple):
    """Latency of each record in ``ms``, CPU in microseconds a record, and polls a second."""

    ms: list[float]
    cpu_us: float
    polls_per_s: float

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def p99(self) -> float:
        return sorted(self.ms)[int(len(self.ms) * 0.99)]


class Goal(NamedTuple):
    """Goal for the p50 of ``case`` in ms, or for its ratio to that of ``over``."""

    text: str
    case: Case
    over: Case | None
    goal: float
    floor: float


GOALS = (
    Goal("kohort / confluent-kafka", Case(KOHORT, WAIT), Case(CONFLUENT, WAIT), 1.0, 1.25),
    Goal("kohort async / aiokafka", Case(KOHORT_ASYNC, WAIT), Case(AIOKAFKA, WAIT), 0.8, 1.0),
    Goal("kohort, poll(timeout_ms=0) in a loop, ms", Case(KOHORT, SPIN), None, 2.0, 4.0),
)


def measure(case: Case, servers: str, topic: str, records: int, rng: random.Random) -> Latency:
    """Produce the records and measure the time of each until the client has it."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    words = [case.client, case.how, servers, topic, group, str(records)]
    link = Link(int(servers.rpartition(":")[2]))
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks._receiving", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{case.client} ended before its first record")
            sent = []
            for number in range(records):
                time.sleep(rng.uniform(*GAP_S))
                sent.append(produce(link, topic, b"%08d" % number))
            received = Received(**json.loads(process.stdout.readline()))
        finally:
            process.kill()
    ms = [(came - went) / 1e6 for came, went in zip(received.at_ns, sent, strict=True)]
    return Latency(ms, received.cpu_s / records * 1e6, received.polls_per_s)


def produce(link: Link, topic: str, value: bytes) -> int:
    """Produce a record and return the time of sending in monotonic ns."""
    batch = encode_batch([NewRecord(time.time_ns() // 1_000_000, None, value)])
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])
    sent = time.monotonic_ns()
    answer = link.ask(request, PRODUCE_VERSION)
    error = answer.responses[0].partition_responses[0].error_code
    if error:
        raise RuntimeError(f"{topic}: the record was refused with error {error}")
    return sent


def table(done: dict[Case, list[Latency]]) -> str:
    """Return the medians of the rounds as Markdown."""
    lines = [
        "| client | how | p50 ms | least and most of a round | p99 ms | CPU us/record | polls/s |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case, rounds in done.items():
        medians = [each.median for each in rounds]
        cells = [
            case.client,
            case.how,
            f"{statistics.median(medians):.2f}",
            f"{min(medians):.2f} to {max(medians):.2f}",
            f"{statistics.median(each.p99 for each in rounds):.1f}",
            f"{statistics.median(each.cpu_us for each in rounds):,.0f}",
            f"{statistics.median(each.polls_per_s for each in rounds):,.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def goals(done: dict[Case, list[Latency]]) -> str:
    """Return the goals and the figures as Markdown."""
    lines = ["| p50 | figure | goal | never above | |", "|---|---:|---:|---:|---|"]
    for text, case, over, goal, floor in GOALS:
        value = _p50(done[case]) / (1.0 if over is None else _p50(done[over]))
        reached = verdict(value, goal, floor)
        lines.append(f"| {text} | {value:.2f} | {goal:g} | {floor:g} | {reached} |")
    return "\n".join(lines)


def _p50(rounds: list[Latency]) -> float:
    return statistics.median(each.median for each in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--records", type=int)
    parser.add_argument("--short", action="store_true", help="3 rounds of 60 records")
    parser.add_argument("--servers", help="measure on these instead of starting Apache Kafka")
    parser.add_argument("--clients", help="names separated by commas", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.servers is None and (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    if args.servers is not None:
        done = measure_all(args.servers, args)
    else:
        with kafka() as server:
            server.start()
            done = measure_all(server.bootstrap_servers, args)
    packages = "anyio", "confluent-kafka", "aiokafka", "kafka-python"
    setting = "; ".join([hardware(), *versions(*packages, java=True)])
    text = f"{setting}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n{table(done)}\n"
    if not args.clients:
        text = f"{text}\n{goals(done)}\n"
    print(f"\n{text}")
    if args.output is not None:
        about = __doc__.split("\n\n")[2]
        args.output.write_text(f"# Latency on an idle topic\n\n{about}\n\n{text}")


def measure_all(servers: str, args: argparse.Namespace) -> dict[Case, list[Latency]]:
    """Measure each case once a round."""
    rng = random.Random(args.seed)
    rounds = args.rounds or (SHORT_ROUNDS if args.short else 5)
    records = args.records or (SHORT_RECORDS if args.short else 100)
    wanted = args.clients.split(",") if args.clients else None
    cases = [case for case in CASES if wanted is None or case.client in wanted]
    done: dict[Case, list[Latency]] = {case: [] for case in cases}
    for number, case in turns(rounds, cases, warm_up=False):
        topic = new_topic(servers)
        latency = measure(case, servers, topic, records, rng)
        done[case].append(latency)
        print(
            f"round {number} of {rounds}: {case.client}, {case.how}: p50 {latency.median:.2f} ms",
            flush=True,
        )
    return done


def new_topic(servers: str) -> str:
    """Create a topic of one partition with one record."""
    from tests.support.topics import create_topic

    topic = create_topic(servers, f"latency-{uuid.uuid4().hex[:8]}", 1)
    produce(Link(int(servers.rpartition(":")[2])), topic, b"first")
    return topic


if __name__ == "__main__":
    main()
