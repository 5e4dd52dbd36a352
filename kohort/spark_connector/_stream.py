"""Reader for ``spark.readStream``. The offsets of a micro-batch are enough to replay it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kohort.spark_connector._announcements import Announcement
from kohort.spark_connector._batch import input_partitions, read_partition
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._offsets import StreamOffset, has_ends_only
from kohort.spark_connector._stop_requests import StopRequests
from kohort.spark_connector._stream_driver import StreamDriver
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._loss import replayed_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.spark_connector._group_driver import GroupDriver


class KohortStreamReader(DataSourceStreamReader):
    """Stream reader. Spark runs the query with one and pickles others for the executors.

    Its subclasses have the calls that differ between versions of Spark.
    """

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._announcement: Announcement | None = Announcement(options)
        self._stop_requests: StopRequests | None = None
        self._driver: StreamDriver | GroupDriver | None = None  # created on first use
        self._has_planned = False
        self._start: tuple[dict[str, Any], StreamOffset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark creates one more reader in another process, pickles it for the executors and never
        # asks it for offsets. No query waits for that one.
        if self._announcement is not None:
            self._announcement.withdraw()
        return self.__dict__ | {"_announcement": None, "_driver": None, "_stop_requests": None}

    def _note_call(self) -> None:
        """Note that the query calls this source. Raise InvalidOptionError if it has a twin."""
        if self._announcement is not None:
            announcement, self._announcement = self._announcement, None
            announcement.check()

    def _ensure_driver(self) -> StreamDriver | GroupDriver:
        if self._driver is None:
            if self._options.is_member:
                # Imported here, because it and kohort's group modules are slow to import.
                from kohort.spark_connector._group_driver import GroupDriver

                self._driver = GroupDriver(self._options)
            else:
                consumer = make_consumer(self._options.properties, group=True)
                self._driver = StreamDriver(consumer, self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        # Spark calls this several times and does not keep the result, so it has to be constant.
        self._note_call()
        return StreamOffset().to_json()

    def next_batch(
        self, start: dict[str, Any], max_rows: int | None, *, ignore_minimum: bool = False
    ) -> dict[str, Any]:
        """Return the end of the batch after ``start``, or ``start`` if there are no new records."""
        self._note_call()
        self._has_planned = True
        self._stop_requests = self._stop_requests or StopRequests()
        if self._stop_requests.applies_to(start):
            if self._ensure_driver().commit_up_to(self._parsed(start)):
                self._stop_requests.acknowledge()
            return start
        at, driver = self._parsed(start), self._ensure_driver()
        found = driver.next_offset(at, max_rows, ignore_minimum=ignore_minimum)
        # Spark compares texts: a different text is new data.
        return start if found is at else found.to_json()

    def _parsed(self, start: dict[str, Any]) -> StreamOffset:
        """Return the offset. An idle query passes the same one several times a second."""
        if self._start is None or self._start[0] != start:
            self._start = start, StreamOffset.from_checkpoint(start)
        return self._start[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._note_call()
        offset, lost = StreamOffset.from_checkpoint(end), []
        if has_ends_only(end) and start != end:
            offset = offset.after(StreamOffset.from_checkpoint(start))
        if offset.lost:
            lost = offset.new_losses(StreamOffset.from_checkpoint(start))
        # The first batch of a run is a replay unless this reader has planned it.
        if self._has_planned:
            return input_partitions(offset.ranges(), self._options, lost)
        ranges, recreated = replayed_ranges(offset, self._options)
        return input_partitions(ranges, self._options, [*lost, *recreated])

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because latestOffset() commits one batch later."""

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None
