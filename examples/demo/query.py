"""Streaming query as a member of the demo's group, in a separate process with its JVM.

The process reports each event as one line of JSON on standard output. The query's own process
reports rebalances on standard error. Each line of standard input is an order: ``start`` the query,
``leave`` the group, or ``count`` the records of the topic.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from examples.demo.members import SESSION_MS
from kohort import ConsumerRebalanceListener, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODULE = "examples.demo.query"  # import path of this module
FLIGHT = "carrier string, dep_delay double"
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def report_line(**message: Any) -> str:
    """Return a report as a line of JSON."""
    return json.dumps(message, separators=(",", ":")) + "\n"


def report(**message: Any) -> None:
    """Send a report to the demo."""
    sys.stdout.write(report_line(**message))
    sys.stdout.flush()


class QueryListener(ConsumerRebalanceListener):
    """Listener that reports every call, in the process in which Spark runs the source."""

    def _report_call(self, callback: str, partitions: Collection[TopicPartition]) -> None:
        numbers = sorted(tp.partition for tp in partitions)
        os.write(2, report_line(event=callback, partitions=numbers).encode())  # one write per line

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._report_call("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._report_call("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._report_call("lost", lost)


class FlightQuery:
    """Spark session, and the query while it runs."""

    def __init__(
        self, bootstrap_servers: str, topic: str, group: str, pace: float, name: str
    ) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("kohort demo")
        for key, value in CONFIGURATION.items():
            builder = builder.config(key, value)
        self._spark: SparkSession = builder.getOrCreate()
        self._pace = pace
        self._query: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="kohort-demo-")
        self._topic = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self._member = {
            "kafka.group.id": group,
            "kafka.client.id": name,
            "kafka.group.protocol": "auto",  # the consumer protocol
            "kafka.consumer.session.timeout.ms": str(SESSION_MS),
            "maxOffsetsPerTrigger": str(max(100, int(pace / 2))),
            "rebalanceListener": f"{MODULE}:QueryListener",
        }

    def start(self) -> None:
        """Start the query, which joins the group."""
        stream = self._flights(self._spark.readStream, self._topic | self._member)
        self._query = (
            stream.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._folder.name)
            .start()
        )

    def leave(self) -> None:
        """Stop the query between two batches, with all offsets committed."""
        from kohort.spark_connector import stop

        if self._query is not None:
            stop(self._query)
            self._query = None
        report(event="left")

    def count(self) -> None:
        """Report the figures that Spark counts in the whole topic, by carrier."""
        from pyspark.sql import functions as f

        rows = (
            self._flights(self._spark.read, self._topic)
            .groupBy("carrier")
            .agg(
                f.count("*").alias("flights"),
                f.count("dep_delay").alias("delays"),
                f.sum("dep_delay").alias("minutes"),
            )
            .collect()
        )
        figures = {r.carrier: (r.flights, r.delays, int(r.minutes or 0)) for r in rows}
        report(event="counted", carriers=figures)

    def stop(self) -> None:
        """Stop Spark and remove its folder."""
        self._spark.stop()
        self._folder.cleanup()

    def _flights(self, reader: Any, options: dict[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        frame: DataFrame = reader.format("kohort").options(**options).load()
        flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
        return frame.select("partition", "offset", flight).select("partition", "offset", "flight.*")

    def _take(self, batch: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        if rows:
            report(event="read", records=rows)
            time.sleep(len(rows) / self._pace)  # stands for the work of a real query


def main(bootstrap_servers: str, topic: str, group: str, pace: str, name: str) -> None:
    """Carry out orders until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo handles Ctrl-C
    query = FlightQuery(bootstrap_servers, topic, group, float(pace), name)
    report(event="ready")
    try:
        for words in sys.stdin:
            {"start": query.start, "leave": query.leave, "count": query.count}[words.strip()]()
    finally:
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
