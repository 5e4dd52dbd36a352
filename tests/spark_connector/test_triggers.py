"""Queries in a group whose batches end long before the next one, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.spark_connector import BatchEndListener
from kohort.testing import Cluster
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.members import GROUP, committed
from tests.spark_connector.reading import produce
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


END_S = 150


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[None]:
    """A listener that reports the ends of all batches."""
    listener = BatchEndListener()
    spark.streams.addListener(listener)
    yield
    spark.streams.removeListener(listener)


def run(spark: SparkSession, cluster: Cluster, folder: Path, **trigger: Any) -> StreamingQuery:
    """Start a query in a group, with this trigger."""
    return started(
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.group.id", GROUP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .trigger(**trigger),
        folder / "checkpoint",
    )


@pytest.mark.usefixtures("listener")
def test_listener_lets_a_batch_be_committed_before_the_next_trigger(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    produce(cluster, 5)
    query = run(spark, cluster, tmp_path, processingTime="1 day")
    wait_until(lambda: query.exception() or committed(cluster).get(0) == 5)
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}
    query.stop()


@pytest.mark.long  # further queries
@pytest.mark.usefixtures("listener")
@pytest.mark.parametrize("trigger", ["once", "availableNow"])
def test_last_batch_is_committed_and_released_at_the_end(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, trigger: str
) -> None:
    produce(cluster, 5)
    query = run(spark, cluster, tmp_path, **{trigger: True})
    assert query.awaitTermination(END_S)
    wait_until(lambda: not cluster.group(GROUP).members)
    assert committed(cluster) == {0: 5, 1: 0, 2: 0}
