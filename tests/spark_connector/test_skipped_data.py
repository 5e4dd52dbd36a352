"""Rows for corrupt batches and lost ranges, which a query leaves out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort import TopicPartition
from kohort.testing import Cluster
from tests.spark_connector.reading import (
    ALL,
    Query,
    batch_reader,
    delete_before,
    options,
    produce,
    rows,
)
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_S = 90


def all_columns(given: dict[str, str]) -> Any:
    """Return the reader of a batch with all columns but headers."""
    return batch_reader(given, f"{ALL}, timestampType int, error error")


def read(given: dict[str, str]) -> list[dict[str, Any]]:
    reader = all_columns(given)
    return sorted(rows(reader, reader.partitions()), key=lambda row: row["offset"])


def test_corrupt_batch_is_a_row_with_its_bytes_and_reason(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.produce("orders", [value, value], partition=0)
    cluster.corrupt(TopicPartition("orders", 0), 2)
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        found = read(options(cluster, kafka_on_error="skip"))
    assert [row["value"] for row in found] == [b"a", b"a", None, b"c", b"c"]
    bad = found.pop(2)
    assert (bad["topic"], bad["partition"], bad["offset"], bad["key"]) == ("orders", 0, 2, None)
    assert bad["error"]["next_offset"] == 4
    assert "CRC" in bad["error"]["reason"]
    assert len(bad["error"]["raw"]) > 60
    assert [row["error"] for row in found] == [None] * 4
    assert "The task continues without it (on.error=skip)" in caplog.text


def test_ranges_of_two_tasks_in_a_corrupt_batch_do_not_overlap(cluster: Cluster) -> None:
    cluster.produce("orders", [b"v"] * 6, partition=0)
    cluster.corrupt(TopicPartition("orders", 0), 0)
    found = read(options(cluster, kafka_on_error="skip", minPartitions=2))
    assert [(row["offset"], row["error"]["next_offset"]) for row in found] == [(0, 3), (3, 6)]


def test_lost_range_is_a_row_when_offsets_were_deleted(cluster: Cluster) -> None:
    expected = produce(cluster, 10)
    starts = '{"orders": {"0": 2, "1": 0, "2": 0}}'
    reader = all_columns(options(cluster, failOnDataLoss=False, startingOffsets=starts))
    delete_before(cluster, 6)
    found = sorted(rows(reader, reader.partitions()), key=lambda row: row["offset"])
    lost = found.pop(0)
    assert [row["value"] for row in found] == expected[6:]
    assert (lost["offset"], lost["error"]["next_offset"]) == (2, 6)
    assert lost["error"]["reason"] == "no longer in the log"
    assert lost["error"]["raw"] is None


def test_lost_range_of_a_stream_is_a_row(cluster: Cluster) -> None:
    expected = produce(cluster, 10)
    query = Query(
        options(cluster, failOnDataLoss=False, startingOffsets="earliest"),
        "value binary, offset bigint, error error",
    )
    query.start()
    query.trigger(finish=False)
    query.stop()
    delete_before(cluster, 4)
    query.start()
    query.stop()
    (lost,) = (row for row in query.batches[0] if row["error"] is not None)
    assert (lost["offset"], lost["error"]["next_offset"]) == (0, 4)
    assert [row["value"] for row in query.batches[0] if row["error"] is None] == expected[4:]


def test_rows_without_the_column_are_as_before(cluster: Cluster) -> None:
    cluster.produce("orders", [b"v"], partition=0)
    cluster.corrupt(TopicPartition("orders", 0), 0)
    reader = batch_reader(options(cluster, kafka_on_error="skip"), "value binary")
    assert list(rows(reader, reader.partitions())) == []


@pytest.mark.spark
def test_query_writes_skipped_data_to_a_table_of_its_own(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.produce("orders", [value], partition=0)
    cluster.corrupt(TopicPartition("orders", 0), 1)
    frame = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.on.error", "skip")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("includeErrors", "true")
        .load()
    )

    def write(batch: Any, number: int) -> None:
        batch.where("error is null").write.mode("append").parquet(str(tmp_path / "orders"))
        batch.where("error is not null").write.mode("append").parquet(str(tmp_path / "dead"))

    writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
    assert started(writer, tmp_path / "checkpoint").awaitTermination(END_S)
    good = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(bytes(row["value"]) for row in good) == [b"a", b"c"]
    (bad,) = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert (bad["offset"], bad["error"]["next_offset"]) == (1, 2)
    assert bad["value"] is None
    assert "CRC" in bad["error"]["reason"]
