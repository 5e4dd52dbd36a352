"""Queues taken by share consumers: kohort compared with Java and confluent-kafka's preview.

    python -m benchmarks.queues [--rounds 3] [--scale 1] [--clients A,B] [--cases A;B]
        [--output FOLDER]

Apache Kafka has topics with four partitions. Each client takes a whole topic in a new share group,
with its default options, in a separate process. The clients take turns within each round. Rate and
CPU time of the client count after the first batch received, up to the last acceptance. The CPU time
of the broker includes the start of the client. An explicit member accepts each record by a call.
"200 members" of a client are in one process. The latency of an idle queue is that of
``benchmarks.latency``.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks._consumers import CONFLUENT, KOHORT, KOHORT_ASYNC
from benchmarks._goals import Goal, goal_table
from benchmarks._kafka import FastKafka, java_program, kafka, missing_java_program
from benchmarks._machine import cpu_of, load_of
from benchmarks._names import JAVA
from benchmarks._program import (
    ProgramError,
    about,
    add_names,
    command_of,
    new_group,
    parser,
    publish,
    require_kafka,
    run_command,
    setting,
)
from benchmarks._queue import EXPLICIT, IMPLICIT, RECEIVED
from benchmarks._reading import Reading
from benchmarks._rounds import collect, spread, table
from benchmarks._topics import LARGE, PLAIN, SHAPES, Filled, checksum, fill
from benchmarks.latency import GAP_S, P50, new_topic, received
from kohort import KafkaAdminClient
from kohort.admin import ConfigResource

MANY = 200
LATENCIES = 100
RATE, CPU, BROKER = "records/s", "CPU us/record", "broker's CPU us/record"
FIGURES = (RATE, CPU, BROKER, P50)
CLIENTS = (KOHORT, KOHORT_ASYNC, CONFLUENT, JAVA)


class Case(NamedTuple):
    """Way to take a queue."""

    shape: str
    mode: str
    members: int = 1

    @property
    def title(self) -> str:
        size = SHAPES[self.shape].text.split(",")[0]
        many = f", {self.members} members" if self.members > 1 else ""
        return "idle queue" if self.mode == RECEIVED else f"{size}, {self.mode}{many}"


CASES = {
    case.title: case
    for case in (
        *(Case(shape, mode) for shape in (PLAIN, LARGE) for mode in (IMPLICIT, EXPLICIT)),
        Case(PLAIN, IMPLICIT, MANY),
        Case(PLAIN, RECEIVED),
    )
}


def goals() -> Iterator[Goal]:
    """Yield the goals of both APIs."""
    for title, client in ((title, client) for title in CASES for client in (KOHORT, KOHORT_ASYNC)):
        for over, name, goal, floor in (
            (CONFLUENT, RATE, 1.0, 0.8),
            (JAVA, RATE, 1.0, 0.8),
            (CONFLUENT, CPU, 0.67, 1.0),
            (JAVA, P50, 1.0, 1.25),
        ):
            text = f"{title}: {name} of {client} / {over}"
            yield Goal(text, ((title, client), name), ((title, over), name), goal, floor)


class Queues:
    """The topics, and the programs of all clients."""

    def __init__(self, server: FastKafka, folder: Path, scale: float, cases: list[str]) -> None:
        self._server = server
        self._servers = server.bootstrap_servers
        self._java = java_program("Queue", folder)
        shapes = {CASES[title].shape for title in cases if CASES[title].mode != RECEIVED}
        self._filled = {name: fill(self._servers, SHAPES[name], scale) for name in sorted(shapes)}
        self._rng = random.Random(1)

    def measure(self, pair: tuple[str, str]) -> dict[str, float]:
        """Return the figures of a client in a case."""
        title, client = pair
        case = CASES[title]
        if case.mode == RECEIVED:
            topic = new_topic(self._servers)
            gaps_s = [self._rng.uniform(*GAP_S) for _ in range(LATENCIES)]
            command = self._command(client, case, topic, LATENCIES)
            return {P50: received(command, self._servers, topic, gaps_s)[P50]}
        filled = self._filled[case.shape]
        before = cpu_of(self._server.pid)
        command = self._command(client, case, filled.topic, filled.records)
        reading = checked(client, Reading(**run_command(command)), filled)
        broker_us = (cpu_of(self._server.pid) - before) / filled.records * 1e6
        return {RATE: reading.rate, CPU: reading.cpu_us, BROKER: broker_us}

    def _command(self, client: str, case: Case, topic: str, records: int) -> list[str]:
        group = new_group()
        with KafkaAdminClient(bootstrap_servers=self._servers) as admin:
            config = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs({ConfigResource("group", group): config}).raise_errors()
        words = self._servers, topic, group, records, case.mode, case.members
        if client == JAVA:
            return [*self._java, *map(str, words)]
        return command_of("_queue", client, *words)


def checked(client: str, reading: Reading, filled: Filled) -> Reading:
    """Return the reading. Raise ProgramError unless each record was taken once."""
    if (reading.records, checksum(reading.total or 0)) != filled[1:]:
        raise ProgramError(f"{client} took something else of {filled}: {reading}")
    return reading


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--scale", type=float, default=1.0, help="factor of sizes")
    add_names(arguments, "--clients", CLIENTS)
    text = f"some of {'; '.join(CASES)}, with semicolons"
    arguments.add_argument(
        "--cases", type=lambda given: given.split(";"), default=list(CASES), help=text
    )
    args = arguments.parse_args()
    require_kafka()
    if (reason := missing_java_program()) is not None:
        raise SystemExit(f"not measured: {reason}")
    pairs = [(title, client) for title in args.cases for client in args.clients]
    with tempfile.TemporaryDirectory() as folder, kafka() as server:
        queues = Queues(server, Path(folder), args.scale, args.cases)
        queues.measure((args.cases[0], KOHORT))  # so that the broker is warm
        figures, others = collect(args.rounds, pairs, queues.measure, warm_up=False)
    rows = ([*pair, *(spread(figures[pair, name]) for name in FIGURES)] for pair in pairs)
    publish(
        args.output,
        "queues",
        "Queues taken by share consumers",
        about(__doc__),
        setting("anyio", "confluent-kafka"),
        load_of(others),
        table(["queue", "client", *FIGURES], "llrrrr", rows),
        goal_table(figures, goals()),
    )


if __name__ == "__main__":
    main()
