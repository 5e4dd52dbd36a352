"""Data source class that Spark finds: a name, a schema, and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

try:
    import pyspark
    from pyspark.sql.datasource import DataSource
except ImportError:
    raise ImportError(
        "the Spark connector needs pyspark 4.2 or newer: pip install 'kohort[spark]'"
    ) from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from kohort.spark_connector.options._options import SourceOptions

MIN_PYSPARK = (4, 2)


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

        return default_schema(options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._checked_options(streaming=False)
        from kohort.spark_connector._batch import FilteringBatchReader, KohortBatchReader
        from kohort.spark_connector._schema import check_schema

        check_schema(schema)
        return (FilteringBatchReader if options.pushdown else KohortBatchReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._checked_options(streaming=True)
        from kohort.spark_connector._schema import check_schema
        from kohort.spark_connector._stream import KohortStreamReader

        check_schema(schema)
        return KohortStreamReader(schema, options)

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


def check_environment() -> None:
    """Raise ImportError unless pyspark is new enough and pyarrow is installed."""
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < MIN_PYSPARK:
        raise ImportError(
            f"the Spark connector needs pyspark 4.2 or newer, and this is {pyspark.__version__}. "
            "Older versions cannot limit a micro-batch or report its end"
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
