"""Topics read by Spark with kohort's source and with Spark's own, which runs in the JVM.

    python -m benchmarks.spark [--rounds 5] [--scale 1] [--measures A,B] [--topics A,B]
        [--sessions default,advised,cluster] [--output FOLDER]

Apache Kafka is started, and one Spark session after the other, both sources in each. One session
(local[2]) has no settings that concern speed, the other one has those that docs/spark.md advises.
The third one is on a cluster of three workers with a core each. The version of Spark is that of its
own source, and is installed below .cache. In a session both sources read the same topics with their
own defaults and check CRCs. They take turns within each round, after one round to warm up. A figure
is a median of rounds, a ratio that of medians.

In full this takes 15 minutes. ``--scale 0.1 --rounds 3`` reads topics of a tenth.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks import _spark_ways as ways
from benchmarks._goals import Goal
from benchmarks._machine import load_of
from benchmarks._program import ENVIRONMENT, ROOT, add_names, brokers, parser, publish, setting
from benchmarks._rounds import collect, spread, table
from benchmarks._spark_ways import Ask, Source
from benchmarks._topics import PARTITIONS, Filled, Shape, fill, text
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.support.jars import KAFKA_VERSION, SPARK_ARTIFACTS, missing_spark_source, spark_jars
from tools.spark_versions import environment

SPARK_VERSION = SPARK_ARTIFACTS[0][2]
"""Version of Spark's own source."""

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
ON_CLUSTER = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
WORKERS = 3
DEFAULT_SESSION, ADVISED_SESSION, CLUSTER_SESSION = "default", "advised", "cluster"
SESSIONS = {
    DEFAULT_SESSION: QUIET,
    ADVISED_SESSION: QUIET | ADVISED,
    CLUSTER_SESSION: QUIET | ON_CLUSTER,
}
"""Settings of each session by its name."""
OURS = Source("kohort", "kohort", joins=True)
JVM = Source("Spark's own", "kafka", joins=False)

SMALL, SMALL_ROWS = "small", 50 * ways.TINY_ROWS
MANY, MANY_PARTITIONS = "many", 24
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plain", "100 B, plain", 3_000_000, text(100)),
        Shape("lz4", "100 B, lz4", 3_000_000, text(100), "lz4"),
        Shape("two", "100 B, plain, for the session without settings", 2_000_000, text(100)),
        Shape(SMALL, "100 B, plain, for micro-batches", SMALL_ROWS, text(100)),
        Shape(MANY, "100 B, plain, in 24 partitions", MANY_PARTITIONS * 64, text(100)),
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
        Measure("udf", "a UDF of 5 ms for each record", ways.slow_udf, (MANY,), (1, 1.05)),
        *_streams("start", "start of a stream", ways.start, (SMALL,), None),
    )
}
DEFAULT_GOALS = {"count": (2.6, 2.2), "noop": (2.4, 1.9), "group": (2.5, 2.1), "once": (1.6, 1.25)}
"""Goal and floor of each measure in the session without settings, which has no other measures."""
FIGURE = "figure"


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
        if self.session == CLUSTER_SESSION or self.topic == MANY:
            return self.session == CLUSTER_SESSION and self.topic == MANY
        if self.session != DEFAULT_SESSION or self.measure.aims is None:
            return True
        return self.topic == TWO and self.measure.name in DEFAULT_GOALS

    def __str__(self) -> str:
        return f"{self.session} session, {self.topic}, {self.measure.text}"


Readings = dict[tuple[tuple[Row, Source], str], list[float]]
"""Figures of each row and source, one a round."""


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
def master(session: str) -> Iterator[str]:
    """Yield the master of a session. Start a cluster if it needs one."""
    if session != CLUSTER_SESSION:
        yield "local[2]"
        return
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with StandaloneCluster(Path(folder), WORKERS) as cluster:
            cluster.wait_ready()
            yield cluster.master


@contextmanager
def session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start Spark in a separate JVM with both sources. Its workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ |= ENVIRONMENT  # pip compiles in the same way when it installs
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    jars = ",".join(map(str, sorted(spark_jars().glob("*.jar"))))
    builder = SparkSession.builder.config("spark.jars", jars)
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
    spark: SparkSession, servers: str, filled: dict[str, Filled], chosen: list[Row], rounds: int
) -> tuple[Readings, list[float]]:
    """Return the figures of all rounds and the load of other processes."""

    def run(case: tuple[Row, Source]) -> dict[str, float]:
        row, source = case
        topic, records, _ = filled[row.topic]
        took = row.measure.run(Ask(spark, source, servers, topic, records))
        return {FIGURE: row.measure.figure(took, records)}

    cases = [(row, source) for row in chosen if row.topic in filled for source in (OURS, JVM)]
    return collect(rounds, cases, run, warm_up=True)


def ratios(readings: Readings) -> str:
    """Return a Markdown table with the goal and the floor of each ratio."""
    rows = []
    for row, ours, theirs in _measured(readings):
        if row.aims is not None:
            goal = Goal("", 0, 1, *row.aims)
            ratio = statistics.median(ours) / statistics.median(theirs)
            figures = spread(ours), spread(theirs), f"{ratio:.2f}"
            cells = row.measure.text, row.topic, row.session, row.measure.unit, *figures
            rows.append([*cells, *goal.cells(ratio)])
    head = "", "topic", "session", "unit", "kohort", "Spark's own", "ratio", "goal", "never below"
    return table([*head, ""], "llllrrrrrl", rows)


def starts(readings: Readings) -> str:
    """Return a Markdown section with the milliseconds until a query has its first batch."""
    rows = [
        [row.measure.text, row.session, spread(ours), spread(theirs)]
        for row, ours, theirs in _measured(readings)
        if row.aims is None
    ]
    text = (
        f"Milliseconds from `start()` to the end of the first batch of {SMALL_ROWS:,} rows. "
        "Spark starts a Python process for each query with kohort's source."
    )
    shown = table(["", "session", "kohort", "Spark's own"], "llrr", rows)
    return f"## Start of a streaming query\n\n{text}\n\n{shown}" if rows else ""


def _measured(readings: Readings) -> Iterator[tuple[Row, list[float], list[float]]]:
    """Yield the rows with figures of both sources: ours, and those of Spark's own."""
    for row in rows_of(SESSIONS, MEASURES.values()):
        ours, theirs = (list(readings.get(((row, it), FIGURE), ())) for it in (OURS, JVM))
        if ours and theirs:
            yield row, ours, theirs


def conditions(readings: Readings, filled: dict[str, Filled], shares: list[float]) -> str:
    """Return the sizes, the sessions and the method."""
    sizes = ", ".join(f"{topic} {rows:,}" for topic, rows, _ in filled.values())
    options = ", ".join(f"`{name}={value}`" for name, value in ADVISED.items())
    most = max(map(len, readings.values()), default=0)
    return (
        f"Rows of each topic (4 partitions, {MANY} has {MANY_PARTITIONS}): {sizes}. Sessions are "
        f"`local[2]`: the default one has no settings that concern speed, the advised one has "
        f"{options}. That on a cluster has {WORKERS} workers with a core each. Medians "
        f"of {most} rounds at most, the least and the most in brackets; both sources take turns "
        "within a round, after one to warm up, and check CRCs. A ratio is kohort's figure by "
        "that of Spark's own source: for rows a second more is better, for the time of a batch "
        f"less. {load_of(shares)}"
    )


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--scale", type=float, default=1.0, help="factor of the sizes")
    add_names(arguments, "--topics", SHAPES)
    add_names(arguments, "--measures", MEASURES)
    add_names(arguments, "--sessions", SESSIONS)
    args = arguments.parse_args()
    if pyspark.__version__ != SPARK_VERSION:
        python = str(environment(SPARK_VERSION))
        os.execv(python, [python, "-m", "benchmarks.spark", *sys.argv[1:]])
    if (reason := missing_spark_source()) is not None:
        raise SystemExit(f"not measured: {reason}")
    rows = list(rows_of(args.sessions, (MEASURES[name] for name in args.measures)))
    readings: Readings = {}
    shares: list[float] = []
    filled: dict[str, Filled] = {}
    with brokers() as servers:
        for topic in args.topics:
            if any(topic == row.topic for row in rows):
                print(f"filling {topic}: {SHAPES[topic].text}", flush=True)
                scale = args.scale if topic in BATCH else 1.0
                partitions = MANY_PARTITIONS if topic == MANY else PARTITIONS
                filled[topic] = fill(servers, SHAPES[topic], scale, partitions)
        for name in args.sessions:
            chosen = [row for row in rows if row.session == name]
            with master(name) as url, session({"spark.master": url, **SESSIONS[name]}) as spark:
                found, others = measure(spark, servers, filled, chosen, args.rounds)
            readings |= found
            shares += others
    jars = ", ".join(f"{name} {version}" for _, name, version in SPARK_ARTIFACTS)
    publish(
        args.output,
        "spark",
        "Spark: kohort's source compared with Spark's own",
        setting("pyspark", "pyarrow", cluster=f"{jars}; Apache Kafka {KAFKA_VERSION}"),
        conditions(readings, filled, shares),
        ratios(readings),
        starts(readings),
    )


if __name__ == "__main__":
    main()
