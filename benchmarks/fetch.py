"""Whole topics read through a group: kohort compared with other clients and with two anchors.

    python -m benchmarks.fetch [--short] [--rounds 5] [--scale 1] [--clients A,B] [--topics A,B]
        [--partitions 4,1,100] [--cluster kafka|inprocess] [--output FOLDER]

Apache Kafka is started and filled. Then each client reads each topic from its earliest record to
its end, as the only member of a new group. Each commits automatically, checks CRCs and reads all
four fields of every record. Each reading is a separate process, and all take turns within each
round. Rate and CPU time count after the first batch received, up to the last record. Memory is the
peak of resident memory. The number and the sum of the records are checked.

The anchors have no group. The limit reads only lengths, and the bare decoder runs nothing but
kohort's decoder (benchmarks/_anchors.py).

``--partitions``: all clients read topics with the first number. The anchors and the clients that
the goals compare read those with the other numbers.

``--cluster inprocess`` reads from two brokers of kohort.testing in a separate process, without a
JVM. All clients are then measured with a slower broker, and a tenth of the records.

In full this takes more than an hour. With ``--short`` only the cells of the goals are measured,
with four partitions and a tenth of the records, round after round for a minute.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._clients import Client, clients
from benchmarks._fetch_tables import ABOUT, GOALS, Run
from benchmarks._program import add_names, brokers, numbers, parser, publish, setting
from benchmarks._rounds import collect
from benchmarks._topics import PARTITIONS, SHAPES, SNAPPY, Filled, fill
from benchmarks.cluster import KohortServer
from tests.support.jars import KAFKA_VERSION

SHORT_S = 60.0
PART = 0.1
"""Default scale of the short form, and of the in-process cluster."""
KAFKA, IN_PROCESS = "kafka", "inprocess"
BROKERS = 2
"""Number of brokers of the in-process cluster."""
COMPARED = {side[0] for goal in GOALS for side in (goal.case, goal.over) if side is not None}
"""Pairs of client and topic that the goals need."""
WITH_LIMIT = COMPARED | {(names.LIMIT, topic) for _, topic in COMPARED}
NOT_READ = {(names.KAFKA_PYTHON, SNAPPY)}
"""The environment lacks the package with which kafka-python reads snappy."""
WITH_ANCHORS = COMPARED | {(client, topic) for client in names.ANCHORS for _, topic in COMPARED}


class Cell(NamedTuple):
    """Client that reads a topic. ``shape`` is the topic's name in the tables."""

    client: Client
    shape: str
    filled: Filled


def measure(servers: str, partitions: int, cells: list[Cell], rounds: int, seconds: float) -> Run:
    """Read all cells in turn, for this number of rounds or until ``seconds`` are over."""
    print("one reading of each topic to warm up", flush=True)
    first = {cell.shape: cell for cell in reversed(cells)}
    for cell in first.values():
        cell.client.read(servers, cell.filled)
    by_name = {(cell.client.name, cell.shape): cell for cell in cells}

    def read(name: tuple[str, str]) -> dict[str, float]:
        return by_name[name].client.read(servers, by_name[name].filled).figures()

    figures, others = collect(rounds, by_name, read, warm_up=False, seconds=seconds)
    filled = list({cell.filled.topic: cell.filled for cell in cells}.values())
    return Run(partitions, filled, figures, others)


@contextmanager
def cluster(name: str) -> Iterator[str]:
    """Yield the bootstrap servers of a new cluster."""
    if name == IN_PROCESS:
        ours = KohortServer(BROKERS)
        try:
            yield ours.bootstrap_servers
        finally:
            ours.stop()
    else:
        with brokers() as servers:
            yield servers


def main() -> None:
    """Measure, print the tables and write them."""
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--short", action="store_true", help="measure the goals for a minute")
    arguments.add_argument("--scale", type=float, help="factor of sizes: 1, or 0.1 if short")
    arguments.add_argument("--partitions", type=numbers, help="4,1,100, or 4 with --short")
    arguments.add_argument("--cluster", choices=(KAFKA, IN_PROCESS), default=KAFKA)
    add_names(arguments, "--topics", SHAPES)
    add_names(arguments, "--clients", names.EVERY)
    args = arguments.parse_args()
    rounds, seconds = (1000, SHORT_S) if args.short else (args.rounds, float("inf"))
    scale = args.scale or (PART if args.short or args.cluster == IN_PROCESS else 1.0)
    runs: list[Run] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found, missing = clients(args.clients, folder)
        servers = stack.enter_context(cluster(args.cluster))
        for partitions in args.partitions or ([PARTITIONS] if args.short else [PARTITIONS, 1, 100]):
            every = [
                (client, topic)
                for topic in args.topics
                for client in found
                if (client.name, topic) not in NOT_READ
            ]
            if args.short or runs:
                only = WITH_LIMIT if args.short else WITH_ANCHORS
                every = [(client, topic) for client, topic in every if (client.name, topic) in only]
            filled: dict[str, Filled] = {}
            for name in dict.fromkeys(name for _, name in every):
                shape = SHAPES[name]
                print(f"filling {name}, {partitions} partitions: {shape.text}", flush=True)
                filled[name] = fill(servers, shape, scale, partitions, f"{name}-{partitions}")
            os.sync()  # so that writing to disks does not slow the first readings
            cells = [Cell(client, name, filled[name]) for client, name in every]
            runs.append(measure(servers, partitions, cells, rounds, seconds))
    ours = f"{BROKERS} brokers of kohort.testing in a process"
    where = f"Apache Kafka {KAFKA_VERSION}" if args.cluster == KAFKA else ours
    packages = "anyio", "pyarrow", "confluent-kafka", "aiokafka", "kafka-python"
    publish(
        args.output,
        "fetch" if args.cluster == KAFKA else "fetch_inprocess",
        "Whole topics, read through a group",
        setting(*packages, cluster=f"franz-go as of tests/interop/go/go.mod; {where}", go=True),
        ABOUT,
        *(f"Not measured: {name}: {why}." for name, why in missing.items()),
        *(run.text() for run in runs),
    )


if __name__ == "__main__":
    main()
