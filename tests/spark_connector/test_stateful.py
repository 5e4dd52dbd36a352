"""Queries that keep state and share a group, in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark_connector import BatchEndListener
from kohort.testing import Cluster
from tests.interop.waiting import look_again_soon
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.members import committed, member
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
KEYS = 4
SHARED = "keeps state, and another member of group 'billing' has read"


def count(
    spark: SparkSession, cluster: Cluster, folder: Path, totals: dict[str, int]
) -> StreamingQuery:
    """Start a query that keeps the number of records for each key in ``totals``."""
    frame = (
        spark.readStream.format("kohort")
        .schema("key string")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.group.id", "billing")
        .option("kafka.heartbeat.interval.ms", "300")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        totals.update({row["key"]: row["count"] for row in batch.collect()})

    counts = frame.groupBy("key").count()
    return started(counts.writeStream.outputMode("update").foreachBatch(write), folder)


@pytest.mark.long  # a query with state
def test_query_with_state_fails_when_a_second_one_joins_its_group(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    listener, totals, written = BatchEndListener(), dict[str, int](), 0
    second = member(cluster)  # without Spark, whose processes start slowly on a busy machine

    def produce_when_all_is_done() -> None:
        nonlocal written
        look_again_soon()
        if sum(committed(cluster).values()) < written:
            return
        records = [(f"key-{number % KEYS}", "value") for number in range(KEYS * 10)]
        cluster.produce("orders", records)
        written += len(records)

    def trigger_the_second_one() -> None:
        second.trigger()
        produce_when_all_is_done()

    spark.streams.addListener(listener)
    try:
        produce_when_all_is_done()
        first = count(spark, cluster, tmp_path / "first", totals)
        wait_until(lambda: first.exception() or sum(committed(cluster).values()) == written)
        assert totals == {f"key-{number}": 10 for number in range(KEYS)}
        second.start()
        wait_until(first.exception, trigger_the_second_one)
        assert SHARED in str(first.exception())
    finally:
        spark.streams.removeListener(listener)
        for query in spark.streams.active:
            query.stop()
        if second.reader is not None:
            second.stop()
