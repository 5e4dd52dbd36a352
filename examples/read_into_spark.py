"""Read a topic into Spark: as a batch, then as a stream that is a member of a consumer group.

Needs ``pip install 'kohort[spark]'`` and Java 17.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import SparkSession

from kohort.spark_connector import lag
from kohort.testing import Cluster


def main(bootstrap_servers: str, folder: str) -> None:
    # Spark starts Python processes. They must be this Python, where kohort is installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    orders = (
        spark.read.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    orders.groupBy("partition").count().orderBy("partition").show()

    # Run it again and again: it continues where it stopped, and shares the topic with the group.
    query = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.group.id", "billing")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .schema("key string, value string")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(spark.read.parquet(f"{folder}/orders").count(), "orders, in")
    print(len(query.recentProgress), "micro-batches, still to read:", lag(query.lastProgress))
    spark.stop()


if __name__ == "__main__":
    with Cluster(topics={"orders": 3}) as cluster:
        cluster.produce("orders", [f"order {n}".encode() for n in range(300)])
        with tempfile.TemporaryDirectory() as folder:
            main(cluster.bootstrap_servers, folder)
        for partition, committed in sorted(cluster.committed("billing").items()):
            print(partition, committed.offset)
