"""Where Spark looks for data sources by itself: a module ``pyspark_...`` with a DefaultSource."""

from __future__ import annotations

from kohort.spark_connector import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
