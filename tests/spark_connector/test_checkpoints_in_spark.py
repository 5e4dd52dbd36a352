"""Checkpoints in Spark: restored from a backup, of another topic, and behind a wrong group."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.testing import Cluster
from tests.spark_connector.members import committed
from tests.spark_connector.reading import produce
from tests.spark_connector.test_checkpoints import PAST_END, set_offset
from tests.spark_connector.test_spark import run
from tests.spark_connector.versions import limits_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.long,  # several queries each
    pytest.mark.spark,
    pytest.mark.timeout(900),
]


def offsets(spark: SparkSession, folder: Path) -> list[int]:
    """Return the offsets in the output of a query, in order."""
    return sorted(row["offset"] for row in spark.read.parquet(str(folder / "out")).collect())


@limits_only  # older versions commit the last batch with the next run
def test_restored_query_reads_on_from_its_backup(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    query, backup = tmp_path / "query", tmp_path / "backup"
    produce(cluster, 5)
    run(spark, cluster, query)
    shutil.copytree(query, backup)
    produce(cluster, 9)
    run(spark, cluster, query)
    assert committed(cluster)[0] == 14
    shutil.rmtree(query)
    shutil.move(backup, query)
    run(spark, cluster, query)
    assert offsets(spark, query) == list(range(14))


def test_query_fails_when_its_checkpoint_has_another_topic(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    cluster.create_topic("payments", 1)
    produce(cluster, 5)
    produce(cluster, 2, "payments")
    run(spark, cluster, tmp_path)
    with pytest.raises(StreamingQueryException, match="the checkpoint is of 'orders'"):
        run(spark, cluster, tmp_path, subscribe="payments")
    produce(cluster, 3)
    run(spark, cluster, tmp_path)
    assert offsets(spark, tmp_path) == list(range(8))


def test_group_offset_past_log_end_repeats_no_record(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    produce(cluster, 5)
    run(spark, cluster, tmp_path)
    produce(cluster, 3)
    set_offset(cluster, PAST_END)
    said = f"orders-0 ends at 8 but the group's offset is {PAST_END}"
    with pytest.raises(StreamingQueryException, match=said):
        run(spark, cluster, tmp_path)
    run(spark, cluster, tmp_path, failOnDataLoss="false")
    assert offsets(spark, tmp_path) == list(range(8))
