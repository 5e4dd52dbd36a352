"""The source in real Spark: found, planned, pickled, run in worker processes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.testing import Cluster, ProducerRecord
from tests.spark_connector.starting import started
from tests.spark_connector.versions import limits_only, older_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # pyspark warns of every pandas from 3 on when it returns Arrow data.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

END_S = 300


def load(spark: SparkSession, cluster: Cluster, columns: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("kohort").option(
        "kafka.bootstrap.servers", cluster.bootstrap_servers
    )
    if columns:
        reader = reader.schema(columns)
    return reader.options(**({"subscribe": "orders"} | options)).load()


def run(spark: SparkSession, cluster: Cluster, folder: Path, **options: Any) -> list[Any]:
    """Run an AvailableNow query that writes to ``folder``. Return its progress."""
    query = started(
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.group.id", "billing")
        .options(**({"subscribe": "orders", "startingOffsets": "earliest"} | options))
        .load()
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .trigger(availableNow=True),
        folder / "checkpoint",
    )
    assert query.awaitTermination(END_S)
    return query.recentProgress


def test_a_topic_as_a_data_frame(spark: SparkSession, cluster: Cluster) -> None:
    when = 1_700_000_000_123
    cluster.produce(
        "orders",
        [
            ProducerRecord(b"first", b"k", [("h", b"1"), ("i", None)], when, 0),
            ProducerRecord(None, None, (), when, 2),
        ],
    )
    frame = load(spark, cluster, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = (row.asDict(recursive=True) for row in frame.orderBy("partition").collect())
    moment = datetime.datetime.fromtimestamp(when // 1000).replace(microsecond=123_000)
    assert first == {
        "key": b"k",
        "value": b"first",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": moment,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_aggregation_over_several_tasks(spark: SparkSession, cluster: Cluster) -> None:
    cluster.produce("orders", [(f"k{number}", f"v{number % 7}") for number in range(3000)])
    frame = load(spark, cluster, "value string, partition int", minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    counts = {row["value"]: row["count"] for row in frame.groupBy("value").count().collect()}
    assert counts == {f"v{rest}": len(range(rest, 3000, 7)) for rest in range(7)}


def test_an_empty_topic(spark: SparkSession, cluster: Cluster) -> None:
    assert load(spark, cluster).count() == 0


@limits_only
def test_registered_by_hand_it_works_too(spark: SparkSession, cluster: Cluster) -> None:
    from kohort.spark_connector import KohortDataSource

    spark.dataSource.register(KohortDataSource)
    cluster.produce("orders", [b"v"])
    assert load(spark, cluster, "value string").collect()[0]["value"] == "v"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribeTo": "x"}, "no option is called 'subscribeto': did you mean subscribe?"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set"),
        ({"subscribe": "orderz"}, "no topic is called orderz"),
    ],
)
def test_what_is_wrong_is_said_in_sparks_error(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        load(spark, cluster, **options).collect()
    assert said in str(caught.value)


def test_writing_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(1)
    with pytest.raises(PySparkException, match="kohort reads and does not write"):
        frame.write.format("kohort").mode("append").save()
    with pytest.raises(PySparkException, match="kohort reads and does not write"):
        stream = spark.readStream.format("rate").load().writeStream.format("kohort")
        stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination(END_S)


@limits_only
def test_bounded_stream_with_commits_continues_from_checkpoint(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.produce("orders", [(f"k{number}", f"v{number}") for number in range(100)])
    progress = run(spark, cluster, tmp_path, maxOffsetsPerTrigger=40)
    assert [each["numInputRows"] for each in progress] == [40, 40, 20]
    cluster.produce("orders", [(f"k{number}", f"v{number}") for number in range(100, 110)])
    progress = run(spark, cluster, tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [10]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["value"] for row in found) == sorted(f"v{number}" for number in range(110))
    assert len({(row["partition"], row["offset"]) for row in found}) == 110
    assert sum(at.offset for at in cluster.committed("billing").values()) == 110


@older_only
def test_bounded_stream_is_one_batch_on_older_spark(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.produce("orders", [(f"k{number}", f"v{number}") for number in range(100)])
    assert [each["numInputRows"] for each in run(spark, cluster, tmp_path)] == [100]
    cluster.produce("orders", [(f"k{number}", f"v{number}") for number in range(100, 110)])
    assert [each["numInputRows"] for each in run(spark, cluster, tmp_path)] == [10]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["value"] for row in found) == sorted(f"v{number}" for number in range(110))
    # The second run has committed the batch of the first one.
    assert sum(at.offset for at in cluster.committed("billing").values()) == 100


def test_a_stream_that_runs_until_it_is_stopped(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    query = started(
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.group.id", "billing")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .schema("value string")
        .load()
        .writeStream.format("memory")
        .queryName("running"),
        tmp_path,
    )
    expected = 0

    def all_committed() -> bool:
        done = sum(at.offset for at in cluster.committed("billing").values())
        return done == expected or query.exception() is not None

    try:
        for _ in range(2):
            cluster.produce("orders", [f"v{number}" for number in range(50)])
            expected += 50
            cluster.wait_until(all_committed, END_S)
            assert query.exception() is None
            assert spark.table("running").count() == expected
    finally:
        query.stop()


def test_lost_data_fails_the_query_and_says_what(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    cluster.produce("orders", [b"v"] * 30)
    run(spark, cluster, tmp_path)
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 3)
    with pytest.raises(StreamingQueryException, match="was read up to"):
        run(spark, cluster, tmp_path)


@limits_only
def test_sql_reads_by_views_and_by_tables_with_options(
    spark: SparkSession, cluster: Cluster
) -> None:
    from pyspark.errors import PySparkException

    cluster.produce("orders", [b"v"] * 3)
    address = f"kafka.bootstrap.servers '{cluster.bootstrap_servers}'"
    each_read = f"'kafka.bootstrap.servers' = '{cluster.bootstrap_servers}', 'subscribe' = 'orders'"

    def count(sql: str) -> int:
        found: int = spark.sql(f"SELECT count(*) FROM {sql}").collect()[0][0]
        return found

    spark.sql(f"CREATE TEMPORARY VIEW seen USING kohort OPTIONS ({address}, subscribe 'orders')")
    assert count("seen") == 3
    assigned = "assign '{\"orders\":[0,1,2]}'"
    view = "CREATE TEMPORARY VIEW text (value string) USING kohort"
    spark.sql(f"{view} OPTIONS ({address}, {assigned})")
    assert spark.sql("SELECT DISTINCT value FROM text").collect()[0][0] == "v"

    with pytest.raises(PySparkException, match="Spark keeps no options of a table"):
        spark.sql(f"CREATE TABLE lost USING kohort OPTIONS ({address}, subscribe 'orders')")
    spark.sql("CREATE TABLE kept (value binary, offset bigint) USING kohort")
    try:
        with pytest.raises(PySparkException, match="Spark keeps no options of a table"):
            count("kept")
        assert count(f"kept WITH ({each_read})") == 3
        assert spark.sql(f"SELECT * FROM STREAM kept WITH ({each_read})").isStreaming
        reader = spark.read.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        assert reader.option("subscribe", "orders").table("kept").count() == 3
    finally:
        spark.sql("DROP TABLE kept")
