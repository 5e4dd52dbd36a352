"""Entry point for Spark, which takes a data source from ``DefaultSource`` of ``pyspark_*``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark_connector import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Imported on first use, because kohort.spark_connector imports pyspark.
    if name == "DefaultSource":
        from kohort.spark_connector import KohortDataSource

        return KohortDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
