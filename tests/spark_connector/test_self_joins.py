"""Queries of one session and one group: one that reads a topic twice, and two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.spark_connector import stop
from kohort.testing import Cluster
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.members import committed
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

END_S = 150
COUNT = 30


def load(spark: SparkSession, cluster: Cluster) -> DataFrame:
    return (
        spark.readStream.format("kohort")
        .schema("value string")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.group.id", "billing")
        .option("kafka.heartbeat.interval.ms", "300")
        .option("rebalanceWait", "280s")  # the batches of a busy machine are slow
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


def run(frame: DataFrame, folder: Path, into: list[Any]) -> StreamingQuery:
    """Start a query that appends its rows to ``into``."""

    def write(batch: DataFrame, number: int) -> None:
        into.extend(batch.collect())

    return started(frame.writeStream.foreachBatch(write), folder)


@pytest.mark.long  # the error comes after 30 s
def test_self_join_of_one_load_in_a_group_is_an_error(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.produce("orders", [f"order-{number}" for number in range(COUNT)])
    frame, rows = load(spark, cluster), list[Any]()
    joined = frame.alias("a").join(frame.alias("b"), "value")
    query = run(joined, tmp_path / "checkpoint", rows)
    with pytest.raises(Exception, match="two sources in group 'billing'"):
        query.awaitTermination(END_S)
    assert (rows, committed(cluster)) == ([], {})


def test_two_queries_of_one_load_share_a_group(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    frame, rows = load(spark, cluster), list[Any]()
    cluster.produce("orders", [f"order-{number}" for number in range(COUNT)])
    queries = [run(frame, tmp_path / name, rows) for name in ("first", "second")]
    wait_until(lambda: len(rows) >= COUNT or any(query.exception() for query in queries))
    for query in queries:
        assert stop(query, END_S)
    assert sorted(row["value"] for row in rows) == sorted(f"order-{n}" for n in range(COUNT))
    assert sum(committed(cluster).values()) == COUNT
