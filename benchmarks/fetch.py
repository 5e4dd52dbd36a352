"""Whole topics read through a group: kohort compared with other clients and with two anchors.

    python -m benchmarks.fetch [--short] [--rounds 5] [--scale 1] [--clients A,B] [--topics A,B]
        [--partitions 4,1,100] [--cluster kafka|inprocess]

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

In full this takes more than an hour. With ``--brief`` slow clients read the first topic only. With
``--short`` only the cells of the goals are measured, with four partitions and a tenth of the
records, round after round for a minute.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._arguments import numbers, require_known, words
from benchmarks._clients import Client, clients
from benchmarks._fetch_tables import Run, setting
from benchmarks._goals import GOALS
from benchmarks._kafka import kafka
from benchmarks._machine import Others
from benchmarks._reading import Reading
from benchmarks._rounds import turns
from benchmarks._topics import PARTITIONS, SHAPES, Filled, fill
from benchmarks.cluster import KohortServer
from tests.support.jars import KAFKA_VERSION, missing_kafka

RESULTS = Path(__file__).parent / "results"
SHORT_S = 60.0
PART = 0.1
"""Default scale of the short form, and of the in-process cluster."""
KAFKA, IN_PROCESS = "kafka", "inprocess"
BROKERS = 2
"""Number of brokers of the in-process cluster."""
COMPARED = set().union(*(goal.cells for goal in GOALS))
"""Pairs of client and topic that the goals need."""
WITH_LIMIT = COMPARED | {(names.LIMIT, topic) for _, topic in COMPARED}
WITH_ANCHORS = COMPARED | {(client, topic) for client in names.ANCHORS for _, topic in COMPARED}


class Cell(NamedTuple):
    """Client that reads a topic. ``shape`` is the topic's name in the tables."""

    client: Client
    shape: str
    filled: Filled


class Progress:
    """Progress of ``total`` readings, or of those that ``seconds`` have room for. One line each."""

    def __init__(self, total: int, seconds: float | None) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._seconds = float("inf") if seconds is None else seconds
        self._others = Others()
        self.others: list[float] = []

    @property
    def over(self) -> bool:
        """True if the time is used up."""
        return self._left() <= 0

    def _left(self) -> float:
        spent = time.monotonic() - self._began
        estimate = spent / self._done * (self._total - self._done)
        return min(estimate, self._seconds - spent)

    def tell(self, what: str, reading: Reading) -> None:
        """Print the line of a reading."""
        self._done += 1
        self.others.append(self._others.share())
        print(
            f"{max(0.0, self._left()):5.0f} s left; {what:45}{reading.rate / 1000:8,.0f} k/s"
            f"{reading.cpu_us:7.2f} us{reading.peak_mb:6.0f} MB; others {self.others[-1]:3.0f} %",
            flush=True,
        )


def measure(
    servers: str, partitions: int, cells: list[Cell], rounds: int, seconds: float | None
) -> Run:
    """Read all cells in turn, for this number of rounds or until ``seconds`` are over."""
    print("one reading of each topic to warm up", flush=True)
    first = {cell.shape: cell for cell in reversed(cells)}
    for cell in first.values():
        cell.client.read(servers, cell.filled)
    readings: defaultdict[tuple[str, str], list[Reading]] = defaultdict(list)
    progress = Progress(rounds * len(cells), seconds)
    for number, cell in turns(rounds, cells, warm_up=False):
        reading = cell.client.read(servers, cell.filled)
        readings[cell.client.name, cell.shape].append(reading)
        progress.tell(f"round {number}, {cell.filled.topic}, {cell.client.name}", reading)
        if progress.over:
            break
    filled = list({cell.filled.topic: cell.filled for cell in cells}.values())
    return Run(partitions, filled, readings, progress.others)


def chosen(
    found: list[Client], topics: list[str], *, brief: bool, only: set[tuple[str, str]] | None = None
) -> list[tuple[Client, str]]:
    """Return the pairs of client and topic to measure: all, or those whose names are in ``only``.

    With ``brief`` slow clients read the first topic only, unless a goal compares them.
    """

    def wanted(client: str, topic: str) -> bool:
        if only is not None:
            return (client, topic) in only
        skipped = brief and client in names.SLOW and topic != topics[0]
        return not skipped or (client, topic) in COMPARED

    return [(client, topic) for topic in topics for client in found if wanted(client.name, topic)]


@contextmanager
def cluster(name: str) -> Iterator[str]:
    """Yield the bootstrap servers of a new cluster."""
    if name == IN_PROCESS:
        ours = KohortServer(BROKERS)
        try:
            yield f"127.0.0.1:{ours.port}"
        finally:
            ours.stop()
    else:
        with kafka() as server:
            server.start()
            yield server.bootstrap_servers


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    every = names.EVERY
    parser.add_argument("--short", action="store_true", help="measure only the goals, in a minute")
    parser.add_argument(
        "--brief", action="store_true", help="slow clients read only the first topic"
    )
    parser.add_argument("--rounds", type=int, help="5, or as many as fit into --short")
    parser.add_argument(
        "--scale", type=float, help="factor of the topics' sizes: 1, or 0.1 if short"
    )
    parser.add_argument("--topics", type=words, default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--clients", type=words, default=list(every), help=", ".join(every))
    parser.add_argument("--partitions", type=numbers, help="4,1,100, or 4 with --short")
    parser.add_argument("--cluster", choices=(KAFKA, IN_PROCESS), default=KAFKA)
    parser.add_argument(
        "--output", type=Path, help=f"folder, by default {RESULTS.name}/ unless --short"
    )
    args = parser.parse_args()
    for given, known in ((args.topics, SHAPES), (args.clients, every)):
        require_known(parser, given, known)
    args.seconds = SHORT_S if args.short and args.rounds is None else None
    args.rounds = args.rounds or (1000 if args.short else 5)
    args.scale = args.scale or (PART if args.short or args.cluster == IN_PROCESS else 1.0)
    args.partitions = args.partitions or ([PARTITIONS] if args.short else [PARTITIONS, 1, 100])
    if args.output is None and not args.short:
        args.output = RESULTS
    return args


def main() -> None:
    """Measure, print the tables and write them."""
    args = arguments()
    if args.cluster == KAFKA and (reason := missing_kafka()) is not None:
        raise SystemExit(
            f"cannot start Apache Kafka: {reason}. Use --cluster {IN_PROCESS} to measure without it"
        )
    runs: list[Run] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found, missing = clients(args.clients, folder)
        for name, why in missing.items():
            print(f"{name} is not measured: {why}")
        servers = stack.enter_context(cluster(args.cluster))
        for partitions in args.partitions:
            only = WITH_LIMIT if args.short else WITH_ANCHORS if runs else None
            pairs = chosen(found, args.topics, brief=args.brief, only=only)
            filled: dict[str, Filled] = {}
            for name in dict.fromkeys(name for _, name in pairs):
                shape = SHAPES[name]
                print(f"filling {name}, {partitions} partitions: {shape.text}", flush=True)
                topic = f"{name}-{partitions}"
                filled[name] = fill(servers, shape, args.scale, partitions, topic)
            os.sync()  # so that writing to disks does not slow the first readings
            cells = [Cell(client, name, filled[name]) for client, name in pairs]
            runs.append(measure(servers, partitions, cells, args.rounds, args.seconds))
    ours = f"{BROKERS} brokers of kohort.testing in a process"
    where = f"Apache Kafka {KAFKA_VERSION}" if args.cluster == KAFKA else ours
    text = "\n\n".join(
        [
            "# Whole topics, read through a group",
            setting(where),
            *(f"Not measured: {name}: {why}." for name, why in missing.items()),
            *(run.text() for run in runs),
        ]
    )
    print(f"\n{text}")
    if args.output is not None:
        name = "fetch" if args.cluster == KAFKA else "fetch_inprocess"
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / f"{name}.md").write_text(text + "\n")
        print(f"written to {args.output}")


if __name__ == "__main__":
    main()
