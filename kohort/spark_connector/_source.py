"""Data source class that Spark finds: a name, a schema, and readers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NoReturn

try:
    import pyspark
    from pyspark.sql.datasource import DataSource
except ImportError:
    raise ImportError(
        "the Spark connector needs pyspark 4.0 or newer: pip install 'kohort[spark]'"
    ) from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from kohort.spark_connector.options._options import SourceOptions

MIN_PYSPARK = (4, 0)
FILTERS_PYSPARK = (4, 1)
"""First version that passes filters to a Python source."""
LIMITS_PYSPARK = (4, 2)
"""First version that passes the last offset and a limit to a Python source."""


class KohortDataSource(DataSource):
    """Data source ``spark.read.format("kohort")`` and ``spark.readStream.format("kohort")``.

    Spark finds it without ``spark.dataSource.register(KohortDataSource)``, which is allowed too.
    """

    # The methods import names that older pyspark lacks and modules that need pyarrow. Spark
    # imports every source it finds, also for sessions that do not use it.

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> str:
        options = self._checked_options(streaming=None)
        from kohort.spark_connector._schema import default_schema

        return default_schema(options.include_headers, options.include_errors)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._checked_options(streaming=False)
        from kohort.errors import UnsupportedOptionError
        from kohort.spark_connector._batch import FilteringBatchReader, KohortBatchReader
        from kohort.spark_connector._schema import check_schema, has_errors

        check_schema(schema)
        options = dataclasses.replace(options, include_errors=has_errors(schema))
        if options.pushdown and pyspark_version() < FILTERS_PYSPARK:
            raise UnsupportedOptionError(
                f"option pushdown requires Spark 4.1 or newer, and this is {pyspark.__version__}"
            )
        return (FilteringBatchReader if options.pushdown else KohortBatchReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._checked_options(streaming=True)
        from kohort.spark_connector._schema import check_schema, has_errors

        check_schema(schema)
        options = dataclasses.replace(options, include_errors=has_errors(schema))
        if pyspark_version() < LIMITS_PYSPARK:
            from kohort.spark_connector._older_stream import OlderStreamReader

            return OlderStreamReader(schema, options)
        from kohort.spark_connector._limited_stream import LimitedStreamReader

        return LimitedStreamReader(schema, options)

    def _checked_options(self, *, streaming: bool | None) -> SourceOptions:
        """Return the checked options, the consumer's included. No I/O. Raise ConfigurationError."""
        check_environment()
        from kohort.spark_connector._consumers import make_consumer
        from kohort.spark_connector._processes import freeze_modules
        from kohort.spark_connector.options._options import SourceOptions

        options = SourceOptions.parse(dict(self.options), streaming=streaming)
        make_consumer(options.properties, group=True).close()
        freeze_modules()
        return options

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        _refuse_to_write()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        _refuse_to_write()


def pyspark_version() -> tuple[int, ...]:
    """Return the major and the minor version of the installed pyspark."""
    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def check_environment() -> None:
    """Raise ImportError unless pyspark is new enough and pyarrow is installed."""
    if pyspark_version() < MIN_PYSPARK:
        raise ImportError(
            f"the Spark connector needs pyspark 4.0 or newer, and this is {pyspark.__version__}. "
            "Older versions have no sources in Python"
        )
    try:
        import pyarrow  # noqa: F401 - checks that it is installed
    except ImportError:
        raise ImportError(
            "the Spark connector needs pyarrow on the driver and on every executor: "
            "pip install 'kohort[spark]'"
        ) from None


def _refuse_to_write() -> NoReturn:
    from kohort.spark_connector._errors import ReadOnlyError

    raise ReadOnlyError(
        'kohort reads and does not write. Use Spark\'s own .format("kafka"), or a producer in '
        "foreachPartition"
    )
