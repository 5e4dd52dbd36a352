"""A timeout of Spark is in seconds, as a number."""

from __future__ import annotations

from pyspark.sql.streaming.query import StreamingQuery

from kohort.spark_connector import stop


def end(query: StreamingQuery) -> None:
    # expect: mypy arg-type | pyright reportArgumentType
    stop(query, timeout_s="60")
