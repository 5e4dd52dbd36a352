"""Topics read by Spark with kohort's source and with Spark's own, which is of the JVM.

    python -m benchmarks.spark [--short] [--rounds 5] [--scale 1] [--measures A,B] [--topics A,B]

Apache Kafka and one Spark session (local[2]) are started, both sources in it; both read the same
topics with the same settings and their own defaults, CRCs checked, in turn within each round, after
one round to warm up. A figure is a median of rounds, a ratio that of medians.

In full this takes ten minutes; with --short topics of a tenth are read in three rounds. With
--readings FILE the readings of all runs with the same file are put together in one table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks import _spark_ways as ways
from benchmarks._clients import COMPILED_ONCE
from benchmarks._goals import verdict
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._plot import Bar, svg
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
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
OURS = Source("kohort", "kohort", joins=True)
JVM = Source("Spark's own", "kafka", joins=False)
BUSY = 10
"""Percent of all cores that may be others' before a figure is not to be trusted."""

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plain", "100 B, plain", 3_000_000, text(100)),
        Shape("lz4", "100 B, lz4", 3_000_000, text(100), "lz4"),
        Shape("small", "100 B, plain, for micro-batches", 50 * ways.TINY_ROWS, text(100)),
    )
}
LARGE = ("plain", "lz4")


class Measure(NamedTuple):
    """``goal`` of Spark's own by ours; or of ours by Spark's own, where it is under its floor."""

    name: str
    text: str
    run: Callable[[Ask], float]
    topics: tuple[str, ...]
    goal: float
    floor: float

    def figure(self, seconds: float, rows: int) -> float:
        """What the table shows: milliseconds, or million rows a second."""
        return seconds if self.is_latency else rows / seconds / 1e6

    @property
    def is_latency(self) -> bool:
        return self.goal < self.floor

    @property
    def unit(self) -> str:
        return "ms a batch" if self.is_latency else "million rows/s"


IN_A_GROUP = "; ours in a group"
"""Spark's own source cannot be: it is asked for the same as without."""


def _streams(
    name: str, text: str, run: Callable[[Ask], float], topics: tuple[str, ...], *aims: float
) -> Iterator[Measure]:
    yield Measure(name, text, run, topics, *aims)
    yield Measure(f"{name}-group", text + IN_A_GROUP, ways.in_a_group(run), topics[:1], *aims)


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("count", "count()", ways.count, LARGE, 3, 2),
        Measure("noop", "noop sink", ways.noop, LARGE, 3, 2),
        Measure("group", "groupBy(...).agg(count, max)", ways.group_by, LARGE, 3, 2),
        *_streams("once", "stream, AvailableNow in one batch", ways.one_batch, LARGE, 2, 1.5),
        *_streams("300k", "stream, 300,000 rows a batch", ways.bounded(300_000), LARGE, 1.2, 1),
        *_streams(
            "tiny", f"stream, {ways.TINY_ROWS} rows a batch", ways.tiny, ("small",), 1.1, 1.25
        ),
    )
}
Readings = Mapping[str, list[float]]
"""``measure topic source`` -> a figure a round."""


def key(measure: Measure, topic: str, source: Source) -> str:
    return f"{measure.name} {topic} {source.format}"


@contextmanager
def session() -> Iterator[SparkSession]:
    """Spark with both sources; its workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ |= COMPILED_ONCE  # as pip does when it installs
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    jars = ",".join(map(str, sorted(spark_jars().glob("*.jar"))))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def measure(
    spark: SparkSession,
    servers: str,
    filled: dict[str, Filled],
    chosen: list[Measure],
    rounds: int,
    until: float,
    kept: Path | None,
) -> tuple[Readings, list[float]]:
    """The figures of all rounds, and the share of the machine that others took.

    None is begun after ``until``. ``kept``: a file of figures of earlier runs, which count too,
    and where these are put.
    """
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    readings: defaultdict[str, list[float]] = defaultdict(list, known)
    shares: list[float] = []
    others = Others()
    cells = [
        (each, filled[topic], source)
        for each in chosen
        for topic in each.topics
        if topic in filled
        for source in (OURS, JVM)
    ]
    for number, (each, (topic, rows, _), source) in turns(rounds, cells):
        if time.monotonic() > until:
            break
        took = each.run(Ask(spark, source, servers, topic, rows))
        figure = each.figure(took, rows)
        shares.append(others.share())
        if number:
            readings[key(each, topic, source)].append(figure)
            if kept is not None:
                kept.write_text(json.dumps(readings))
        print(
            f"round {number}, {topic}, {each.text}, {source.name}: "
            f"{short(figure)} {each.unit}; others {shares[-1]:.0f} %",
            flush=True,
        )
    return readings, shares


def table(readings: Readings) -> str:
    """As Markdown, with the goal and the floor beside each ratio."""
    lines = [
        "| | topic | unit | kohort | Spark's own | ratio | goal | never below | |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for each in MEASURES.values():
        for topic in each.topics:
            ours, theirs = (readings.get(key(each, topic, it), []) for it in (OURS, JVM))
            if not ours or not theirs:
                continue
            ratio = statistics.median(ours) / statistics.median(theirs)
            told = verdict(ratio, each.goal, each.floor)
            figures = spread(list(ours)), spread(list(theirs)), f"{ratio:.2f}"
            cells = each.text, topic, each.unit, *figures, f"{each.goal:g}", f"{each.floor:g}", told
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(readings: Readings) -> str:
    """The figures as SVG."""
    panels: dict[str, list[Bar]] = {}
    for each in MEASURES.values():
        for topic in each.topics:
            bars = [
                Bar(source.name, statistics.median(done), min(done), max(done), source is OURS)
                for source in (OURS, JVM)
                if (done := readings.get(key(each, topic, source)))
            ]
            if bars:
                panels[f"{each.text}, {topic}: {each.unit}"] = bars
    return svg(panels, "")


def setting(readings: Readings, filled: dict[str, Filled], shares: list[float]) -> str:
    """The machine, the versions and the sizes."""
    told = [hardware(), *versions("pyspark", "pyarrow", java=True)]
    jars = ", ".join(f"{name} {version}" for _, name, version in SPARK_ARTIFACTS)
    sizes = ", ".join(f"{topic} {rows:,}" for topic, rows, _ in filled.values())
    share = statistics.median(shares)
    options = ", ".join(f"`{name}={value}`" for name, value in SETTINGS.items())
    most = max(map(len, readings.values()), default=0)
    return (
        f"{'; '.join(told)}; {jars}; Apache Kafka {KAFKA_VERSION} on the same machine.\n\n"
        f"Rows of each topic (4 partitions): {sizes}. One session, `local[2]`, {options}. Medians "
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
    parser.add_argument("--short", action="store_true", help="topics of a tenth, three rounds")
    parser.add_argument("--rounds", type=int, help="5, or 3 with --short")
    parser.add_argument("--scale", type=float, help="of the topics' sizes: 1, or 0.1 with --short")
    parser.add_argument("--topics", type=_list, default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--measures", type=_list, default=list(MEASURES), help=", ".join(MEASURES))
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no reading after so many"
    )
    parser.add_argument("--readings", type=Path, help="a file of readings to add to")
    parser.add_argument(
        "--output", type=Path, help=f"a folder; {RESULTS.name}/ beside this unless --short"
    )
    args = parser.parse_args()
    for chosen, known in ((args.topics, SHAPES), (args.measures, MEASURES)):
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
    chosen = [MEASURES[name] for name in args.measures]
    wanted = [t for t in args.topics if any(t in each.topics for each in chosen)]
    with kafka() as server, session() as spark:
        server.start()
        filled: dict[str, Filled] = {}
        for topic in wanted:
            print(f"filling {topic}: {SHAPES[topic].text}", flush=True)
            scale = args.scale if topic in LARGE else 1.0
            filled[topic] = fill(server.bootstrap_servers, SHAPES[topic], scale)
        readings, shares = measure(
            spark, server.bootstrap_servers, filled, chosen, args.rounds, until, args.readings
        )
    told = setting(readings, filled, shares)
    text = (
        "# Spark: kohort's source beside Spark's own\n\n"
        f"{told}\n\n{table(readings)}\n\n![rates](spark.svg)\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "spark.md").write_text(text)
        (args.output / "spark.svg").write_text(plot(readings))
        print(f"written to {args.output}")


if __name__ == "__main__":
    main()
