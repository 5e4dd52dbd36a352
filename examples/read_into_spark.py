"""Read a topic into a Spark DataFrame. Needs ``pip install 'kohort[spark]'`` and Java 17."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from kohort.testing import Cluster


def main(bootstrap_servers: str) -> None:
    # Spark starts Pythons of its own; they must be this one, where kohort is installed.
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
    spark.stop()


if __name__ == "__main__":
    with Cluster(topics={"orders": 3}) as cluster:
        cluster.produce("orders", [f"order {n}".encode() for n in range(300)])
        main(cluster.bootstrap_servers)
