"""The helpers for Spark have types."""

from __future__ import annotations

from typing import assert_type

from pyspark.sql import SparkSession

from kohort import TopicPartition
from kohort.spark_connector import KohortDataSource, RebalanceLogger, lag, stop


def run(session: SparkSession) -> None:
    session.dataSource.register(KohortDataSource)
    session.streams.addListener(RebalanceLogger())
    for query in session.streams.active:
        assert_type(lag(query.lastProgress), dict[TopicPartition, int])
        assert_type(stop(query, timeout_s=5), bool)
