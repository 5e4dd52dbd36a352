"""Spark with its own Kafka source in a separate process. It prints what it reads as JSON.

``python spark_source.py BOOTSTRAP_SERVERS JARS FOLDER MILLISECONDS``: the last is the time from
which records are read. It is a separate process because Spark's JVM takes jars only when it starts.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",  # for a few records compiling is most of the work
}


def main(servers: str, jars: str, folder: str, since: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def source(reader: Any, **options: str) -> Any:
        options = {"subscribe": "orders", "startingOffsets": "earliest", **options}
        if "startingTimestamp" in options:
            del options["startingOffsets"]
        if "subscribePattern" in options:
            del options["subscribe"]
        reader = reader.format("kafka").option("kafka.bootstrap.servers", servers)
        return reader.options(**options).load()

    def batch(**options: str) -> list[str]:
        rows = source(spark.read, **options).selectExpr("cast(value as string) value").collect()
        return sorted(row["value"] for row in rows)

    def stream(name: str, **options: str) -> None:
        """Copy the available records to the topic of that name."""
        written = (
            source(spark.readStream, **options)
            .select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", name)
            .option("checkpointLocation", f"{folder}/{name}")
            .trigger(availableNow=True)
            .start()
        )
        written.awaitTermination()

    read = {
        "all": batch(),
        "since": batch(startingTimestamp=since),
        "since, by partition": batch(
            startingOffsetsByTimestamp=json.dumps({"orders": dict.fromkeys("012", int(since))})
        ),
        "matching": batch(subscribePattern="ord.*|ret.*"),
        "committed": batch(subscribe="transfers", **{"kafka.isolation.level": "read_committed"}),
    }
    stream("copy")
    stream("copy-since", startingTimestamp=since)
    spark.sql("select 'last' as value").write.format("kafka").options(
        **{"kafka.bootstrap.servers": servers, "topic": "orders"}
    ).save()
    stream("copy")
    # The older way finds offsets with a consumer that is a member of a group.
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    read["by the older way"] = batch()
    print(json.dumps(read))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
