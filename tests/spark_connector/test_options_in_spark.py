"""Options, tasks, values and brokers of a query in Spark, and what their errors say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.testing import Cluster, ProducerRecord, Security
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.reading import produce
from tests.spark_connector.starting import started
from tests.spark_connector.test_consumer_options import PROVIDERS
from tests.spark_connector.test_spark import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.long,  # jobs of Spark
    pytest.mark.spark,
    pytest.mark.timeout(600),
]


def tasks_of_a_batch(spark: SparkSession, cluster: Cluster, **options: Any) -> int:
    return load(spark, cluster, **options).rdd.getNumPartitions()


def test_small_batch_has_a_task_for_each_core(spark: SparkSession, cluster: Cluster) -> None:
    for partition in range(3):
        produce(cluster, 1, partition=partition)
    assert tasks_of_a_batch(spark, cluster) == 2
    assert tasks_of_a_batch(spark, cluster, executorCores=3) == 3
    assert tasks_of_a_batch(spark, cluster, maxTasks=1) == 1


def test_small_micro_batch_has_a_task_for_each_core(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = list[int]()

    def write(batch: DataFrame, number: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())

    for partition in range(3):
        produce(cluster, 1, partition=partition)
    query = started(
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", '{"orders":"earliest"}')
        .load()
        .writeStream.foreachBatch(write)
        .trigger(availableNow=True),
        tmp_path,
    )
    wait_until(lambda: not query.isActive)
    assert (query.exception(), tasks) == (None, [2])


def test_offsets_of_whole_topics_are_accepted(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create_topic("payments", 1)
    produce(cluster, 3)
    produce(cluster, 2, "payments")
    starts = '{"orders":"earliest","payments":"latest"}'
    frame = load(spark, cluster, subscribe="orders,payments", startingOffsets=starts)
    assert [row["topic"] for row in frame.select("topic").collect()] == ["orders"] * 3


def test_option_of_java_without_effect_is_accepted(spark: SparkSession, cluster: Cluster) -> None:
    produce(cluster, 3)
    without_effect: dict[str, Any] = {
        "kafka.default.api.timeout.ms": 60_000,
        "kafka.metric.reporters": "a.B",
    }
    assert load(spark, cluster, **without_effect).count() == 3


def test_token_provider_logs_in_on_driver_and_executors(spark: SparkSession) -> None:
    with Cluster(topics={"orders": 1}, security=Security(["SASL_PLAINTEXT"])) as cluster:
        produce(cluster, 3)
        login = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauth.token.provider": f"{PROVIDERS}:Alice",
        }
        assert load(spark, cluster, **login).count() == 3


TLS = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
NANOSECONDS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {**TLS, "kafka.ssl.truststore.location": "/no/such/ca.pem"},
            "ssl.truststore.location: there is no such file",
        ),
        ({"topic": "orders"}, "option topic is for writing, and kohort does not write"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "Connection refused"),
        ({}, f"Spark cannot hold the timestamp {NANOSECONDS} ms"),
    ],
)
def test_error_in_spark_names_the_cause(
    spark: SparkSession, cluster: Cluster, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import PySparkException

    cluster.produce("orders", [ProducerRecord(b"value", timestamp=NANOSECONDS)])
    with pytest.raises(PySparkException) as caught:
        load(spark, cluster, **options).collect()
    assert said in str(caught.value)


def test_task_fails_after_poll_timeout_without_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        produce(cluster, 3)
        address = cluster.bootstrap_servers

        def write(batch: DataFrame, number: int) -> None:
            cluster.stop()
            batch.collect()

        query = started(
            spark.readStream.format("kohort")
            .option("kafka.bootstrap.servers", address)
            .option("kafkaConsumer.pollTimeoutMs", 3000)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(write),
            tmp_path,
        )
        wait_until(query.exception)
        assert "no records of orders-0 [0, 3) arrived for 3000 ms" in str(query.exception())
