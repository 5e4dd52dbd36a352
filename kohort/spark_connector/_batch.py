"""Reader for ``spark.read``, which reads the records that exist when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._processes import freeze_modules, local_cores
from kohort.spark_connector._ranges import OffsetRange, SkippedData, split_into_tasks
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._planning import OffsetPlanner, PlannedRanges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from kohort.spark_connector.planning._filters import ReadFilters


class KohortPartition(InputPartition):
    """Ranges that one task reads, and the data that the driver has skipped."""

    def __init__(self, ranges: Sequence[OffsetRange], skipped: Sequence[SkippedData] = ()) -> None:
        super().__init__(None)
        self.ranges = list(ranges)
        self.skipped = list(skipped)


class KohortBatchReader(DataSourceReader):
    """Batch reader. It plans ranges on the driver and reads them on the executors."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        consumer = make_consumer(self._options.properties, group=True)
        try:
            planned = self._plan(OffsetPlanner(consumer, self._options))
        finally:
            consumer.close()
        return input_partitions(planned.ranges, self._options, planned.skipped)

    def _plan(self, planner: OffsetPlanner) -> PlannedRanges:
        return planner.ranges()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options)


class FilteringBatchReader(KohortBatchReader):
    """Batch reader that takes filters from Spark.

    It is a separate class, because Spark refuses a reader with this method unless
    spark.sql.python.filterPushdown.enabled is set, even for a query without filters.
    """

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        super().__init__(schema, options)
        self._filters: ReadFilters | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that become ranges, and return all, which Spark applies as well."""
        from kohort.spark_connector.planning._filters import ReadFilters

        self._filters = ReadFilters.of(filters)
        return filters

    def _plan(self, planner: OffsetPlanner) -> PlannedRanges:
        planned = planner.ranges()
        if self._filters is None:
            return planned
        return planned._replace(ranges=self._filters.narrow(planned.ranges, planner.first_at))


def input_partitions(
    ranges: Sequence[OffsetRange], options: SourceOptions, skipped: Sequence[SkippedData] = ()
) -> list[InputPartition]:
    """Return the ranges as Spark's partitions, one per task. The first has the skipped data."""
    shared = split_into_tasks(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        max_tasks=options.max_tasks,
        cores=local_cores() if options.executor_cores is None else options.executor_cores,
    )
    if skipped:
        first, *others = shared or [[]]
        return [KohortPartition(first, skipped), *map(KohortPartition, others)]
    return [KohortPartition(each) for each in shared]


def read_partition(
    partition: InputPartition | None, schema: StructType, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task. Spark passes None if a batch has no partitions."""
    if isinstance(partition, KohortPartition):
        # Imported here: it imports pyarrow, which is slow and which the driver does not need.
        from kohort.spark_connector._reading import read_ranges

        try:
            yield from read_ranges(options, schema, partition.ranges, partition.skipped)
        finally:
            freeze_modules()
