"""Queries in a group with a trigger interval, in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark_connector import BatchEndListener
from kohort.testing import Cluster
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.members import committed
from tests.spark_connector.reading import produce
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_listener_lets_a_batch_be_committed_before_the_next_trigger(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    produce(cluster, 5)
    listener = BatchEndListener()
    spark.streams.addListener(listener)
    try:
        query = started(
            spark.readStream.format("kohort")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("kafka.group.id", "billing")
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .trigger(processingTime="1 day"),
            tmp_path / "checkpoint",
        )
        wait_until(lambda: query.exception() or committed(cluster).get(0) == 5)
        assert committed(cluster) == {0: 5, 1: 0, 2: 0}
        query.stop()
    finally:
        spark.streams.removeListener(listener)
