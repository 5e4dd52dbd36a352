"""Measurements of Spark on one topic, with either source, for benchmarks/spark.py.

Every way reads the whole topic. It returns seconds, or milliseconds of a median micro-batch.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

END_S = 300
TINY_ROWS = 400
UDF_S = 0.005
WARM_BATCHES = 5
"""Number of first micro-batches of a query, which start its processes."""


class Source(NamedTuple):
    """Source of Spark. ``joins`` is True if its streams can be members of a group."""

    name: str
    format: str
    joins: bool

    def __str__(self) -> str:
        return self.name


class Ask(NamedTuple):
    """Topic of ``rows`` rows and the source that reads it.

    With ``member`` the stream joins a new group, if the source can.
    """

    spark: SparkSession
    source: Source
    servers: str
    topic: str
    rows: int
    member: bool = False

    def _options(self, **more: Any) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        return options | {name: str(value) for name, value in more.items()}

    def batch(self) -> DataFrame:
        reader = self.spark.read.format(self.source.format)
        return reader.options(**self._options()).load()

    def stream(self, **more: Any) -> list[Any]:
        """Return the progress of all batches of an AvailableNow query from the earliest offsets."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            reader = self.spark.readStream.format(self.source.format)
            options = self._options(**more)
            if self.member and self.source.joins:
                options["kafka.group.id"] = f"benchmark-{uuid.uuid4().hex}"
            query = (
                reader.options(**options)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            if not query.awaitTermination(END_S):
                query.stop()
                raise TimeoutError(f"{self.source.name} has not ended in {END_S} s")
            progress = query.recentProgress
        self.check(sum(each["numInputRows"] for each in progress))
        return list(progress)

    def check(self, found: int) -> None:
        if found != self.rows:
            raise RuntimeError(f"{self.source.name}: {found} of {self.rows} rows of {self.topic}")


def count(ask: Ask) -> float:
    began = time.perf_counter()
    found = ask.batch().count()
    seconds = time.perf_counter() - began
    ask.check(found)
    return seconds


def noop(ask: Ask) -> float:
    began = time.perf_counter()
    ask.batch().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def group_by(ask: Ask) -> float:
    began = time.perf_counter()
    first = F.substring(F.col("value").cast("string"), 1, 4)
    grouped = ask.batch().groupBy(first).agg(F.count("*").alias("rows"), F.max("offset"))
    found = grouped.collect()
    seconds = time.perf_counter() - began
    ask.check(sum(row["rows"] for row in found))
    return seconds


def slow_udf(ask: Ask) -> float:
    """Return the milliseconds of a batch whose UDF takes UDF_S for each record."""
    began = time.perf_counter()
    [row] = ask.batch().agg(F.sum(F.udf(_work, "int")("offset")).alias("rows")).collect()
    seconds = time.perf_counter() - began
    ask.check(row["rows"])
    return seconds * 1000


def _work(offset: int) -> int:
    time.sleep(UDF_S)
    return 1


def one_batch(ask: Ask) -> float:
    began = time.perf_counter()
    ask.stream()
    return time.perf_counter() - began


def bounded(rows: int) -> Callable[[Ask], float]:
    def run(ask: Ask) -> float:
        began = time.perf_counter()
        ask.stream(maxOffsetsPerTrigger=rows)
        return time.perf_counter() - began

    return run


def in_a_group(way: Callable[[Ask], float]) -> Callable[[Ask], float]:
    """Return the way with a stream that joins, commits and leaves, if the source can do that."""
    return lambda ask: way(ask._replace(member=True))


def tiny(ask: Ask) -> float:
    """Return the milliseconds of a batch."""
    progress = ask.stream(maxOffsetsPerTrigger=TINY_ROWS)
    took = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
    return statistics.median(took[WARM_BATCHES:])


def start(ask: Ask) -> float:
    """Return the milliseconds from the start of a query to the end of its first batch.

    That batch has all rows of the topic.
    """
    began = time.time()
    first = ask.stream()[0]
    trigger = datetime.fromisoformat(first["timestamp"]).timestamp()
    return (trigger - began) * 1000 + float(first["durationMs"]["triggerExecution"])
