"""Topics read by Spark with kohort's source and with Spark's own, which runs in the JVM.

    python -m benchmarks.spark [--short] [--rounds 5] [--scale 1] [--measures A,B]
        [--topics A,B] [--sessions default,advised] [--plain-session]

Apache Kafka is started, and one Spark session (local[2]) after the other, both sources in each. One
session has no settings that concern speed, the other one has those that docs/spark.md advises. In a
session both sources read the same topics with their own defaults and check CRCs. They take turns
within each round, after one round to warm up. A figure is a median of rounds, a ratio that of
medians.

In full this takes 15 minutes. With ``--short`` topics of a tenth are read in three rounds. With
``--plain-session`` only the session without settings is measured. With ``--readings FILE`` one
table shows the readings of all runs with the same file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks import _spark_ways as ways
from benchmarks._clients import COMPILED_ONCE
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._rounds import short, spread, turns
from benchmarks._spark_ways import Ask, Source
from benchmarks._topics import Filled, Shape, fill, text
from tests.support.jars import (
    KAFKA_VERSION,
    SPARK_ARTIFACTS,
    missing_kafka,
    missing_spark_source,
    spark_jars,
)

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
"""Settings of every session, which do not concern speed."""
ADVISED = {
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
}
DEFAULT_SESSION, ADVISED_SESSION = "default", "advised"
SESSIONS = {DEFAULT_SESSION: QUIET, ADVISED_SESSION: QUIET | ADVISED}
"""Settings of each session by its name."""
OURS = Source("kohort", "kohort", joins=True)
JVM = Source("Spark's own", "kafka", joins=False)
BUSY = 10
"""Percent of all cores. If other processes take more, the figures are not reliable."""

SMALL, SMALL_ROWS = "small", 50 * ways.TINY_ROWS
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plain", "100 B, plain", 3_000_000, text(100)),
        Shape("lz4", "100 B, lz4", 3_000_000, text(100), "lz4"),
        Shape("two", "100 B, plain, for the session without settings", 2_000_000, text(100)),
        Shape(SMALL, "100 B, plain, for micro-batches", SMALL_ROWS, text(100)),
    )
}
LARGE = ("plain", "lz4")
TWO = "two"
BATCH = (*LARGE, TWO)


class Measure(NamedTuple):
    """Measurement with the goal and the floor of a ratio: Spark's own source to ours.

    A goal below its floor is for the ratio of ours to Spark's own. A measure without ``aims`` is
    reported apart.
    """

    name: str
    text: str
    run: Callable[[Ask], float]
    topics: tuple[str, ...]
    aims: tuple[float, float] | None

    def figure(self, seconds: float, rows: int) -> float:
        """Return the value of the table: milliseconds, or million rows a second."""
        return seconds if self.is_latency else rows / seconds / 1e6

    @property
    def is_latency(self) -> bool:
        return self.aims is None or self.aims[0] < self.aims[1]

    @property
    def unit(self) -> str:
        if self.aims is None:
            return "ms"
        return "ms a batch" if self.is_latency else "million rows/s"


IN_A_GROUP = "; ours in a group"
"""Suffix of a row. Spark's own source cannot join a group, so it runs as without one."""


def _streams(
    name: str,
    text: str,
    run: Callable[[Ask], float],
    topics: tuple[str, ...],
    aims: tuple[float, float] | None,
) -> Iterator[Measure]:
    yield Measure(name, text, run, topics, aims)
    yield Measure(f"{name}-group", text + IN_A_GROUP, ways.in_a_group(run), topics[:1], aims)


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("count", "count()", ways.count, BATCH, (3, 2)),
        Measure("noop", "noop sink", ways.noop, BATCH, (3, 2)),
        Measure("group", "groupBy(...).agg(count, max)", ways.group_by, BATCH, (3, 2)),
        *_streams("once", "stream, AvailableNow in one batch", ways.one_batch, BATCH, (2, 1.5)),
        *_streams("300k", "stream, 300,000 rows a batch", ways.bounded(300_000), LARGE, (1.2, 1)),
        *_streams(
            "tiny", f"stream, {ways.TINY_ROWS} rows a batch", ways.tiny, (SMALL,), (1.1, 1.25)
        ),
        *_streams("start", "start of a stream", ways.start, (SMALL,), None),
    )
}
DEFAULT_GOALS = {"count": (2.6, 2.2), "noop": (2.4, 1.9), "group": (2.5, 2.1), "once": (1.6, 1.25)}
"""Goal and floor of each measure in the session without settings, which has no other measures."""
Readings = Mapping[str, list[float]]
"""Figures of each ``session measure topic source``, one a round."""


class Row(NamedTuple):
    """Row of the table."""

    session: str
    measure: Measure
    topic: str

    @property
    def aims(self) -> tuple[float, float] | None:
        """Goal and floor."""
        if self.session == DEFAULT_SESSION:
            return DEFAULT_GOALS.get(self.measure.name)
        return self.measure.aims

    @property
    def is_measured(self) -> bool:
        """False in the default session for measures that have no goal there."""
        if self.session != DEFAULT_SESSION or self.measure.aims is None:
            return True
        return self.topic == TWO and self.measure.name in DEFAULT_GOALS

    def key(self, source: Source) -> str:
        return f"{self.session} {self.measure.name} {self.topic} {source.format}"


def rows_of(sessions: Iterable[str], measures: Iterable[Measure]) -> Iterator[Row]:
    """Yield the rows that these sessions and measures have, in the order of the table."""
    chosen = set(sessions)
    for measure in measures:
        for topic in measure.topics:
            for name in SESSIONS:
                row = Row(name, measure, topic)
                if name in chosen and row.is_measured:
                    yield row


@contextmanager
def session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start Spark in a separate JVM with both sources. Its workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ |= COMPILED_ONCE  # pip compiles in the same way when it installs
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    jars = ",".join(map(str, sorted(spark_jars().glob("*.jar"))))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
        _end_jvm()


def _end_jvm() -> None:
    """End the JVM, which pyspark would reuse. The flags of a JVM cannot change while it runs."""
    context: Any = SparkContext
    gateway = context._gateway
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def measure(
    spark: SparkSession,
    servers: str,
    filled: dict[str, Filled],
    chosen: list[Row],
    rounds: int,
    until: float,
    readings: dict[str, list[float]],
    kept: Path | None,
) -> list[float]:
    """Add the figures of all rounds and return the load of other processes.

    No round starts after ``until``. ``kept`` is the file for the readings.
    """
    shares: list[float] = []
    others = Others()
    cells = [(row, source) for row in chosen if row.topic in filled for source in (OURS, JVM)]
    for number, (row, source) in turns(rounds, cells):
        if time.monotonic() > until:
            break
        topic, records, _ = filled[row.topic]
        took = row.measure.run(Ask(spark, source, servers, topic, records))
        figure = row.measure.figure(took, records)
        shares.append(others.share())
        if number:
            readings.setdefault(row.key(source), []).append(figure)
            if kept is not None:
                kept.write_text(json.dumps(readings))
        print(
            f"round {number}, {row.session} session, {topic}, {row.measure.text}, {source.name}: "
            f"{short(figure)} {row.measure.unit}; others {shares[-1]:.0f} %",
            flush=True,
        )
    return shares


def table(readings: Readings) -> str:
    """Return a Markdown table with the goal and the floor of each ratio."""
    lines = [
        "| | topic | session | unit | kohort | Spark's own | ratio | goal | never below | |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row, ours, theirs in _measured(readings):
        if row.aims is not None:
            ratio = statistics.median(ours) / statistics.median(theirs)
            goal, floor = row.aims
            figures = spread(ours), spread(theirs), f"{ratio:.2f}"
            cells = row.measure.text, row.topic, row.session, row.measure.unit, *figures
            aims = f"{goal:g}", f"{floor:g}", verdict(ratio, goal, floor)
            lines.append(f"| {' | '.join((*cells, *aims))} |")
    return "\n".join(lines)


def starts(readings: Readings) -> str:
    """Return a Markdown section with the milliseconds until a query has its first batch."""
    lines = [
        "## Start of a streaming query",
        "",
        f"Milliseconds from `start()` to the end of the first batch of {SMALL_ROWS:,} rows. "
        "Spark starts a Python process for each query with kohort's source.",
        "",
        "| | session | kohort | Spark's own |",
        "|---|---|---:|---:|",
    ]
    rows = [
        f"| {row.measure.text} | {row.session} | {spread(ours)} | {spread(theirs)} |"
        for row, ours, theirs in _measured(readings)
        if row.aims is None
    ]
    return "\n".join([*lines, *rows]) if rows else ""


def _measured(readings: Readings) -> Iterator[tuple[Row, list[float], list[float]]]:
    """Yield the rows with figures of both sources: ours, and those of Spark's own."""
    for row in rows_of(SESSIONS, MEASURES.values()):
        ours, theirs = (list(readings.get(row.key(it), ())) for it in (OURS, JVM))
        if ours and theirs:
            yield row, ours, theirs


def setting(readings: Readings, filled: dict[str, Filled], shares: list[float]) -> str:
    """Return the machine, the versions and the sizes."""
    software = [hardware(), *versions("pyspark", "pyarrow", java=True)]
    jars = ", ".join(f"{name} {version}" for _, name, version in SPARK_ARTIFACTS)
    sizes = ", ".join(f"{topic} {rows:,}" for topic, rows, _ in filled.values())
    share = statistics.median(shares)
    options = ", ".join(f"`{name}={value}`" for name, value in ADVISED.items())
    most = max(map(len, readings.values()), default=0)
    return (
        f"{'; '.join(software)}; {jars}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n"
        f"Rows of each topic (4 partitions): {sizes}. Sessions are `local[2]`: the default one has "
        f"no settings that concern speed, the advised one has {options}. Medians "
        f"of {most} rounds at most, the least and the most in brackets; both sources take turns "
        "within a round, after one to warm up, and check CRCs. A ratio is kohort's figure by "
        "that of Spark's own source: for rows a second more is better, for the time of a batch "
        f"less. The machine was {'quiet' if share < BUSY else '**busy**'}: others took "
        f"{share:.0f} % of its cores (median), {max(shares):.0f} % at most."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="topics of a tenth of the size, three rounds"
    )
    parser.add_argument("--rounds", type=int, help="5, or 3 with --short")
    parser.add_argument("--scale", type=float, help="factor of the sizes: 1, or 0.1 with --short")
    parser.add_argument("--topics", type=_list, default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--measures", type=_list, default=list(MEASURES), help=", ".join(MEASURES))
    parser.add_argument("--sessions", type=_list, default=list(SESSIONS), help=", ".join(SESSIONS))
    parser.add_argument(
        "--plain-session", action="store_true", help=f"the same as --sessions {DEFAULT_SESSION}"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no reading after this time"
    )
    parser.add_argument("--readings", type=Path, help="file of readings to add to")
    parser.add_argument(
        "--output", type=Path, help=f"folder, by default {RESULTS.name}/ unless --short"
    )
    args = parser.parse_args()
    if args.plain_session:
        args.sessions = [DEFAULT_SESSION]
    every = (args.topics, SHAPES), (args.measures, MEASURES), (args.sessions, SESSIONS)
    for chosen, known in every:
        if unknown := set(chosen).difference(known):
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    args.rounds = args.rounds or (3 if args.short else 5)
    args.scale = args.scale or (0.1 if args.short else 1.0)
    if args.output is None and not args.short:
        args.output = RESULTS
    return args


def _list(given: str) -> list[str]:
    return [word.strip() for word in given.split(",")]


def main() -> None:
    args = arguments()
    until = time.monotonic() + args.seconds
    if (reason := missing_kafka() or missing_spark_source()) is not None:
        raise SystemExit(f"not measured: {reason}")
    rows = list(rows_of(args.sessions, (MEASURES[name] for name in args.measures)))
    wanted = [topic for topic in args.topics if any(topic == row.topic for row in rows)]
    kept: Path | None = args.readings
    readings = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    shares: list[float] = []
    filled: dict[str, Filled] = {}
    with kafka() as server:
        server.start()
        servers = server.bootstrap_servers
        for topic in wanted:
            print(f"filling {topic}: {SHAPES[topic].text}", flush=True)
            filled[topic] = fill(servers, SHAPES[topic], args.scale if topic in BATCH else 1.0)
        for name in args.sessions:
            chosen = [row for row in rows if row.session == name]
            with session(SESSIONS[name]) as spark:
                shares += measure(
                    spark, servers, filled, chosen, args.rounds, until, readings, kept
                )
    text = setting(readings, filled, shares)
    text = (
        "# Spark: kohort's source compared with Spark's own\n\n"
        f"{text}\n\n{table(readings)}\n\n{starts(readings)}\n"
    ).rstrip() + "\n"
    print(f"\n{text}")
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "spark.md").write_text(text)
        print(f"written to {args.output}")


if __name__ == "__main__":
    main()
