"""Marks of tests of things that only some versions of Spark have."""

from __future__ import annotations

import pytest

from kohort.spark_connector._source import LIMITS_PYSPARK, pyspark_version

limits_only = pytest.mark.skipif(
    pyspark_version() < LIMITS_PYSPARK, reason="it needs Spark 4.2 or newer"
)
older_only = pytest.mark.skipif(
    pyspark_version() >= LIMITS_PYSPARK, reason="it is about Spark 4.0 and 4.1"
)
