"""Cost of many assigned partitions when one of them has records, compared with other clients.

    python -m benchmarks.partitions [--rounds 5] [--short] [--way busy|backlog] [--output FOLDER]

Measurements run on Apache Kafka. The first ones are CPU and latency of a reader of 1,000 partitions
while one of them gets 90 records a second. The others are the rate at which a backlog in one of 10,
1,000 and 2,000 partitions is read. Each reading is a separate process, and the clients take turns
within each round, so that load on the machine affects all of them.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks._consumers import CLIENTS, CONFLUENT, CONSUME, OURS
from benchmarks._goals import Goal, goal_table
from benchmarks._measured import Task
from benchmarks._program import add_names, brokers, measured, parser, publish, setting
from benchmarks._rounds import collect, spread, table
from benchmarks._topics import Shape, fill, text
from benchmarks.latency import CPU, P50, new_topic, receive

RATE = 90
BUSY, BACKLOG = "busy", "backlog"
BUSY_PARTITIONS = 1000
BACKLOGS = (10, 1000, 2000)
FEWEST = BACKLOGS[0]
VALUE_BYTES = 100
LATENCY = "p50, ms"
GOALS = (
    *(Goal(f"{each}, {CPU}", (each, CPU), None, 15, 25) for each in OURS),
    *(Goal(f"{each}, {LATENCY}", (each, LATENCY), None, 11, 15) for each in OURS),
    *(
        Goal(f"{each}, rate of {number:,} : {FEWEST}", (each, number), (each, FEWEST), aim, floor)
        for number, aim, floor in ((1000, 0.8, 0.6), (2000, 0.7, 0.5))
        for each in OURS
    ),
)
Figures = dict[tuple[str, str | int], list[float]]
"""Figures of each client: CPU, LATENCY, or thousand records/s by the number of partitions."""


class Case(NamedTuple):
    """One client, one way to read, and the number of assigned partitions."""

    client: str
    way: str
    partitions: int


def cases(clients: list[str], ways: tuple[str, ...]) -> Iterator[Case]:
    """Yield the cases in the order of the tables."""
    for way, number in ((BUSY, BUSY_PARTITIONS), *((BACKLOG, number) for number in BACKLOGS)):
        for client in clients if way in ways else ():
            yield Case(client, way, number)


def read_busy(case: Case, servers: str, seconds: float) -> dict[str | int, float]:
    """Return CPU and latency of a client while one partition gets records."""
    records = int(seconds * RATE)
    topic = new_topic(servers, case.partitions)
    task = Task("received", case.client, servers, topic, records, partitions=case.partitions)
    found = receive(task, itertools.repeat(1 / RATE, records))
    return {CPU: found[CPU], LATENCY: found[P50]}


def read_backlog(case: Case, servers: str, topic: str, records: int) -> dict[str | int, float]:
    """Return the thousand records a second from the first record to the last."""
    way = CONSUME if case.client == CONFLUENT else case.client
    task = Task("first", way, servers, topic, records, partitions=case.partitions)
    return {case.partitions: records / measured(task)["seconds"] / 1000}


def busy_table(figures: Figures, clients: list[str]) -> str:
    """Return CPU and latency of the readers as Markdown."""
    rows = ([each, *(spread(figures[each, name]) for name in (CPU, LATENCY))] for each in clients)
    return table(["client", CPU, LATENCY], "lrr", rows)


def backlog_table(figures: Figures, clients: list[str]) -> str:
    """Return rates, and their ratios to the rate with the fewest partitions in the same round."""
    head = [f"1 of {number:,}: thousand/s" for number in BACKLOGS]
    head += [f"{number:,} : {FEWEST}" for number in BACKLOGS[1:]]
    rows = []
    for client in clients:
        rates = [figures[client, number] for number in BACKLOGS]
        ratios = [[a / b for a, b in zip(each, rates[0], strict=True)] for each in rates[1:]]
        rows.append([client, *map(spread, rates), *map(spread, ratios)])
    return table(["client", *head], f"l{'r' * len(head)}", rows)


def main() -> None:
    arguments = parser(__doc__, rounds=5, servers=True)
    arguments.add_argument("--short", action="store_true", help="a quarter of the records")
    arguments.add_argument("--way", choices=[BUSY, BACKLOG], help="one way only, both by default")
    add_names(arguments, "--clients", CLIENTS)
    args = arguments.parse_args()
    seconds, records = (3, 500_000) if args.short else (6, 2_000_000)
    shape = Shape(BACKLOG, "", records, text(VALUE_BYTES))
    ways = (BUSY, BACKLOG) if args.way is None else (args.way,)

    def measure(case: Case) -> dict[str | int, float]:
        if case.way == BUSY:
            return read_busy(case, servers, seconds)
        return read_backlog(case, servers, f"{BACKLOG}-{case.partitions}", records)

    with brokers(args.servers) as servers:
        for number in BACKLOGS if BACKLOG in ways else ():
            print(f"filling a topic of {number} partitions", flush=True)
            fill(servers, shape, 1, number, f"{BACKLOG}-{number}", used=1)
        found, shares = collect(args.rounds, cases(args.clients, ways), measure, warm_up=False)
    figures: Figures = defaultdict(list)
    figures |= {(case.client, name): values for (case, name), values in found.items()}
    publish(
        args.output,
        "partitions",
        "Many partitions, one of them with records",
        f"{setting('confluent-kafka', 'aiokafka', 'kafka-python')} Medians of {args.rounds} "
        "rounds, least and most in brackets. Other processes took "
        f"{statistics.median(shares):.0f} % of the cores (median).",
        f"## 1 of {BUSY_PARTITIONS:,} partitions gets {RATE} records a second",
        busy_table(figures, args.clients),
        f"## A backlog in one partition\n\n{records:,} records of {VALUE_BYTES} bytes.",
        backlog_table(figures, args.clients),
        f"## Goals\n\n{goal_table(figures, GOALS)}",
    )


if __name__ == "__main__":
    main()
