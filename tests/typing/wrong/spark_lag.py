"""The lag is by partition."""

from __future__ import annotations

from pyspark.sql.streaming.query import StreamingQuery

from kohort.spark_connector import lag


def total(query: StreamingQuery) -> int:
    # expect: mypy return-value | pyright reportReturnType
    return lag(query.lastProgress)
