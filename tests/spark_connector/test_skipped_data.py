"""Rows for corrupt batches and lost ranges, which a query leaves out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort import TopicPartition
from kohort.spark_connector.planning._planning import OffsetPlanner
from kohort.testing import Cluster
from tests.spark_connector.members import member_options
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


def skipped(query: Query) -> list[tuple[Any, ...]]:
    """Return partition, offset, next offset and reason of all rows of skipped data."""
    return [
        (row["partition"], row["offset"], row["error"]["next_offset"], row["error"]["reason"])
        for batch in query.batches
        for row in batch
        if row["error"] is not None
    ]


def read_values(query: Query) -> list[bytes]:
    return [row["value"] for batch in query.batches for row in batch if row["error"] is None]


@pytest.fixture(params=["alone", "member"])
def losing(request: pytest.FixtureRequest, cluster: Cluster) -> Query:
    """A query with rows for losses that has read five records of each of two topics."""
    cluster.create_topic("other", 1)
    produce(cluster, 5)
    produce(cluster, 5, "other")
    chosen = options if request.param == "alone" else member_options
    given = {"subscribe": "orders,other", "startingOffsets": "earliest", "includeErrors": True}
    query = Query(chosen(cluster, failOnDataLoss=False, **given), f"{ALL}, error error")
    query.run_available_now()
    assert len(read_values(query)) == 10
    return query


@pytest.mark.parametrize("count", [2, 8])
def test_recreated_topic_is_a_row_of_each_partition(
    cluster: Cluster, losing: Query, count: int
) -> None:
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    expected = produce(cluster, count)
    for _ in range(2):
        losing.run_available_now()
        reason = "topic orders was recreated"
        assert skipped(losing) == [(0, 5, None, reason), (1, 0, None, reason), (2, 0, None, reason)]
        assert read_values(losing)[10:] == expected


def test_deleted_topic_is_a_row_without_new_records(cluster: Cluster, losing: Query) -> None:
    cluster.delete_topic("other")
    losing.run_available_now()
    losing.run_available_now()
    assert skipped(losing) == [(0, 5, None, "was deleted")]
    expected = produce(cluster, 2)
    losing.run_available_now()
    losing.run_available_now()
    assert skipped(losing) == [(0, 5, None, "was deleted")]
    assert read_values(losing)[10:] == expected
    cluster.create_topic("other", 1)
    losing.run_available_now()
    assert skipped(losing)[1:] == [(0, 5, None, "topic other was recreated")]


def test_loss_is_the_same_row_when_its_batch_is_replayed(cluster: Cluster, losing: Query) -> None:
    cluster.delete_topic("other")
    losing.start()
    cluster.wait_until(lambda: losing.trigger(finish=False), END_S)
    losing.stop()
    losing.start()
    losing.stop()
    assert skipped(losing) == [(0, 5, None, "was deleted")]


def test_recreated_topic_of_an_interrupted_batch_is_a_row(cluster: Cluster, losing: Query) -> None:
    produce(cluster, 4)
    losing.start()
    cluster.wait_until(lambda: losing.trigger(finish=False), END_S)
    losing.stop()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    losing.start()
    losing.stop()
    assert skipped(losing) == [(0, 5, 9, "the topic was recreated after this batch was planned")]


def test_log_that_ends_too_early_is_a_row(
    cluster: Cluster, losing: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Brokers before 2.8 have no topic ids, so a recreated topic is only shorter.
    monkeypatch.setattr(OffsetPlanner, "ids", lambda *args: {})
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    expected = produce(cluster, 2)
    losing.run_available_now()
    assert skipped(losing) == [(0, 2, 5, "orders-0 ends at 2 but was read up to 5")]
    assert read_values(losing)[10:] == expected


def test_offsets_that_a_batch_does_not_find_are_rows(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    expected = produce(cluster, 10)
    delete_before(cluster, 4)
    given = options(
        cluster,
        failOnDataLoss=False,
        startingOffsets='{"orders": {"0": 2, "1": 0, "2": 7}}',
        endingOffsets='{"orders": {"0": 15, "1": 0, "2": 7}}',
    )
    with caplog.at_level(logging.WARNING, "kohort.spark_connector"):
        found = read(given)
    assert [row["value"] for row in found if row["error"] is None] == expected[4:]
    assert [
        (row["partition"], row["offset"], row["error"]["next_offset"])
        for row in found
        if row["error"] is not None
    ] == [(0, 2, 4), (0, 10, 15)]
    assert "not in the log: orders-0 [2, 4), orders-0 [10, 15)" in caplog.text


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
