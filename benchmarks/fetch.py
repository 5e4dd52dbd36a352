"""Whole topics read through a group on Apache Kafka: kohort beside other clients.

    python -m benchmarks.fetch [--short] [--rounds 5] [--scale 1] [--clients A,B] [--topics A,B]

Apache Kafka is started and filled with topics of four partitions; then each client reads each
topic from its earliest record to its end, as the only member of a new group, with automatic
commits and CRC checks, and reads all four fields of every record. Each such reading is a process of
its own, and they take turns within each round. The rate counts from the first record received to
the last, CPU is that of the client without its imports, memory is the peak of what was resident.
What was read is checked by number and sum.

In full this takes most of an hour; with --brief, where slow clients read one topic, a third of it.
With --short only what the goals compare is measured, on topics of a tenth, round after round for a
minute.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from benchmarks import _names as names
from benchmarks import receive
from benchmarks._clients import Client, clients
from benchmarks._goals import GOALS, Figure, Readings, table
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._plot import Bar, svg
from benchmarks._read import Reading
from benchmarks._rounds import turns
from benchmarks._topics import SHAPES, Filled, fill
from tests.support.jars import KAFKA_VERSION, missing_kafka

RESULTS = Path(__file__).parent / "results"
SHORT_S, SHORT_SCALE = 60.0, 0.1
RECEIVE_S = 8.0
"""What is left of the short form for the receive ceiling."""
RECEIVED = 10_000_000
BUSY = 10
"""Percent of all cores that may be others' before a figure is not to be trusted."""
Cell = tuple[Client, Filled]


class Progress:
    """A line for each of so many readings, or of those that ``seconds`` have room for."""

    def __init__(self, total: int, seconds: float | None) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._seconds = float("inf") if seconds is None else seconds
        self._others = Others()
        self.others: list[float] = []

    @property
    def over(self) -> bool:
        return self._left() <= 0

    def _left(self) -> float:
        spent = time.monotonic() - self._began
        estimate = spent / self._done * (self._total - self._done)
        return min(estimate, self._seconds - spent)

    def tell(self, what: str, reading: Reading) -> None:
        self._done += 1
        self.others.append(self._others.share())
        print(
            f"{max(0.0, self._left()):5.0f} s left; {what:45}{reading.rate / 1000:8,.0f} k/s"
            f"{reading.cpu_us:7.2f} us{reading.peak_mb:6.0f} MB; others {self.others[-1]:3.0f} %",
            flush=True,
        )


def measure(servers: str, cells: list[Cell], rounds: int, seconds: float | None) -> Run:
    """Read all in turn, so many rounds, or until the seconds are over."""
    print("one reading of each topic to warm up", flush=True)
    for filled in {filled.topic: filled for _, filled in cells}.values():
        next(client for client, theirs in cells if theirs == filled).read(servers, filled)
    readings: defaultdict[tuple[str, str], list[Reading]] = defaultdict(list)
    progress = Progress(rounds * len(cells), seconds)
    for number, (client, filled) in turns(rounds, cells, warm_up=False):
        reading = client.read(servers, filled)
        readings[client.name, filled.topic].append(reading)
        progress.tell(f"round {number}, {filled.topic}, {client.name}", reading)
        if progress.over:
            break
    return Run(readings, progress.others)


class Run:
    """What was measured, and what others took of the machine at each reading."""

    def __init__(self, readings: Readings, others: list[float]) -> None:
        self.readings = readings
        self.others = others

    def tables(self) -> str:
        """Each topic's."""
        return "\n\n".join(
            f"## {shape.text}\n\n{rows}"
            for name, shape in SHAPES.items()
            if (rows := self._table(name))
        )

    def _table(self, topic: str) -> str:
        lines = [
            "| client | thousand records/s | best | CPU us/record | peak MB |",
            "|---|---:|---:|---:|---:|",
        ]
        for name in (*names.OURS, *names.OTHERS):
            done = self.readings.get((name, topic))
            if not done:
                continue
            rates = [reading.rate / 1000 for reading in done]
            cells = [
                f"{statistics.median(rates):,.0f}",
                f"{max(rates):,.0f}",
                f"{statistics.median(reading.cpu_us for reading in done):.2f}",
                f"{statistics.median(reading.peak_mb for reading in done):.0f}",
            ]
            lines.append(f"| {' | '.join([name, *cells])} |")
        return "\n".join(lines) if len(lines) > 2 else ""

    def plot(self) -> str:
        """The rates as SVG."""
        panels: dict[str, list[Bar]] = {}
        for topic, shape in SHAPES.items():
            for name in (*names.OURS, *names.OTHERS):
                if done := self.readings.get((name, topic)):
                    rates = [reading.rate / 1000 for reading in done]
                    middle = statistics.median(rates)
                    bar = Bar(name, middle, min(rates), max(rates), name in names.OURS)
                    panels.setdefault(shape.text, []).append(bar)
        return svg(panels, "thousand records/s")

    def quiet(self) -> str:
        """Whether the machine was."""
        share = statistics.median(self.others)
        told = f"others took {share:.0f} % of its cores (median), {max(self.others):.0f} % at most"
        return f"The machine was {'quiet' if share < BUSY else '**busy**'}: {told}."


def setting(run: Run, filled: list[Filled]) -> str:
    """The machine, the versions and the sizes."""
    packages = "anyio", "pyarrow", "confluent-kafka", "aiokafka", "kafka-python"
    told = [hardware(), *versions(*packages, java=True, go=True)]
    sizes = ", ".join(f"{topic} {records:,}" for topic, records, _ in filled)
    most = max(len(done) for done in run.readings.values())
    return (
        f"{'; '.join(told)}; franz-go as of tests/interop/go/go.mod; Apache Kafka {KAFKA_VERSION} "
        f"on the same machine.\n\nRecords of each topic: {sizes}. Medians of {most} rounds; each "
        "client reads a whole topic as the only member of a new group. Tuned: "
        "`fetch.queue.backoff.ms=1`. confluent-kafka reads with `consume(500)`. CPU is that of "
        f"the client without its imports. {run.quiet()}"
    )


def receive_ceiling(rounds: int, answers: int) -> Figure:
    """What our transport receives, as a part of what a blocking socket does."""
    print("receiving answers, kohort beside a blocking socket", flush=True)
    ways = receive.OURS, receive.RAW
    done = receive.compare(rounds, RECEIVED, answers, ways)
    ours, raw = ([turn.megabytes_per_s for turn in done[way]] for way in ways)
    ratios = [a / b for a, b in zip(ours, raw, strict=True)]
    return Figure(statistics.median(ours) / statistics.median(raw), ratios)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    every = (*names.OURS, *names.OTHERS)
    parser.add_argument("--short", action="store_true", help="the goals alone, within a minute")
    parser.add_argument("--brief", action="store_true", help="slow clients read the first topic")
    parser.add_argument("--rounds", type=int, help="5, or as many as fit into --short")
    parser.add_argument("--scale", type=float, help="of the topics' sizes: 1, or 0.1 with --short")
    parser.add_argument("--topics", type=_list, default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--clients", type=_list, default=list(every), help=", ".join(every))
    parser.add_argument(
        "--output", type=Path, help=f"a folder; {RESULTS.name}/ beside this unless --short"
    )
    args = parser.parse_args()
    for chosen, known in ((args.topics, SHAPES), (args.clients, every)):
        if unknown := set(chosen).difference(known):
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    args.seconds = SHORT_S - RECEIVE_S if args.short and args.rounds is None else None
    args.rounds = args.rounds or (1000 if args.short else 5)
    args.scale = args.scale or (SHORT_SCALE if args.short else 1.0)
    if args.output is None and not args.short:
        args.output = RESULTS
    return args


def _list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def main() -> None:
    args = arguments()
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found, missing = clients(args.clients, folder)
        for name, why in missing.items():
            print(f"{name} is not measured: {why}")
        compared = set().union(*(goal.cells for goal in GOALS))
        first = args.topics[0]
        pairs = [
            (client, topic)
            for topic in args.topics
            for client in found
            if (client.name, topic) in compared
            or not (args.short or (args.brief and client.name in names.SLOW and topic != first))
        ]
        server = stack.enter_context(kafka())
        server.start()
        filled: dict[str, Filled] = {}
        for topic in dict.fromkeys(topic for _, topic in pairs):
            print(f"filling {topic}: {SHAPES[topic].text}", flush=True)
            filled[topic] = fill(server.bootstrap_servers, SHAPES[topic], args.scale)
        cells = [(client, filled[topic]) for client, topic in pairs]
        run = measure(server.bootstrap_servers, cells, args.rounds, args.seconds)
    received = receive_ceiling(2 if args.short else 5, 100)
    text = (
        f"# Whole topics, read through a group\n\n{setting(run, list(filled.values()))}\n\n"
        f"{table(run.readings, received)}\n\n"
        + "".join(f"Not measured: {name}: {why}.\n\n" for name, why in missing.items())
        + f"![rates](fetch.svg)\n\n{run.tables()}\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "fetch.md").write_text(text)
        (args.output / "fetch.svg").write_text(run.plot())
        print(f"written to {args.output}")


if __name__ == "__main__":
    main()
