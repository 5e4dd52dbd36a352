"""Where Spark looks for data sources by itself: a module ``pyspark_...`` with a DefaultSource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark_connector import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: _start is imported before pyspark is there.
    if name == "DefaultSource":
        from kohort.spark_connector import KohortDataSource

        return KohortDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
