"""The offsets in the progress and in the checkpoint of a query, as other programs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort import TopicPartition
from kohort.spark_connector import lag
from kohort.spark_connector._source import LIMITS_PYSPARK, pyspark_version
from kohort.testing import Cluster
from tests.spark_connector.reading import ends, kept, produce
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
END_S = 90


def run(spark: SparkSession, cluster: Cluster, folder: Path) -> dict[str, Any]:
    """Read all that is there, and return the last progress."""
    query = started(
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .schema("value string")
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .trigger(availableNow=True),
        folder / "checkpoint",
    )
    assert query.awaitTermination(END_S)
    progress: Any = query.lastProgress
    found: dict[str, Any] = json.loads(progress.json)
    return found


def parsed_strictly(spark: SparkSession, text: str) -> dict[str, dict[int, int]]:
    """Parse as ``Map<String, Map<Integer, Long>>`` in Java, as listeners of Spark do."""
    jvm: Any = spark._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    types, java = mapper.getTypeFactory(), jvm.java
    tree, word, integer, long = (
        java.lang.Class.forName(f"java.{name}")
        for name in ("util.TreeMap", "lang.String", "lang.Integer", "lang.Long")
    )
    inner = types.constructMapType(tree, integer, long)
    found = mapper.readValue(text, types.constructMapType(tree, types.constructType(word), inner))
    return {topic: dict(partitions) for topic, partitions in found.items()}


def test_progress_is_parsed_like_that_of_sparks_own_source(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    counts = {0: 5, 1: 0, 2: 7}
    for partition, count in counts.items():
        produce(cluster, count, partition=partition)
    progress = run(spark, cluster, tmp_path)
    (source,) = progress["sources"]
    found = parsed_strictly(spark, json.dumps(source["endOffset"]))
    assert {topic: each for topic, each in found.items() if each} == {"orders": counts}
    shows_lag = pyspark_version() >= LIMITS_PYSPARK
    assert lag(progress) == {TopicPartition("orders", each): 0 for each in counts if shows_lag}


def test_query_continues_after_an_upgrade_from_version_1(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.produce("orders", [f"v{number}" for number in range(30)])
    run(spark, cluster, tmp_path)
    log = tmp_path / "checkpoint" / "offsets" / "0"
    *lines, last = log.read_text().splitlines()
    end = json.loads(last)
    zeros = {"orders": dict.fromkeys(ends(end)["orders"], 0)}
    older = kept(end) | {"v": 1, "from": zeros, "to": ends(end)}
    log.write_text("\n".join([*lines, json.dumps(older)]))
    (log.parent / ".0.crc").unlink()
    cluster.produce("orders", [f"v{number}" for number in range(30, 40)])
    progress = run(spark, cluster, tmp_path)
    assert sum(ends(progress["sources"][0]["endOffset"])["orders"].values()) == 40
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["value"] for row in rows) == sorted(f"v{number}" for number in range(40))
