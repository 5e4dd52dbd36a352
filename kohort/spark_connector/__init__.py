"""Kafka as a source of Spark's, in Python: no jars, and offsets committed to a group if wanted.

::

    spark.read.format("kohort").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

It is built from kohort's public names alone. The driver plans ranges of offsets; the executors
read them with consumers that are in no group.
"""

from __future__ import annotations

from kohort.spark_connector._source import KohortDataSource

__all__ = ["KohortDataSource"]
