"""Spark data source for Kafka in Python. It needs no jars and can commit offsets to a group.

::

    spark.read.format("kohort").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

The source uses only kohort's public names. The driver plans ranges of offsets. The executors read
them with consumers that are in no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.spark_connector._source import KohortDataSource
from kohort.spark_connector._stop_requests import stop

if TYPE_CHECKING:
    from kohort.spark_connector._query_logger import BatchEndListener, RebalanceLogger, lag

__all__ = ["BatchEndListener", "KohortDataSource", "RebalanceLogger", "lag", "stop"]


def __getattr__(name: str) -> Any:
    # Spark imports every source it finds, also with versions too old for _query_logger.
    if name in ("BatchEndListener", "RebalanceLogger", "lag"):
        from kohort.spark_connector import _query_logger

        return getattr(_query_logger, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
