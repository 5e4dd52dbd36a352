"""Conversion of batches of ``poll_arrow()`` to Spark's batches, without copying rows."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kohort import TopicPartition
from kohort.errors import DataError
from kohort.spark_connector._ranges import SkippedData

US_PER_MS = 1000
"""Microseconds of Spark per millisecond of Kafka."""


class BatchShaper:
    """Converter to batches of one schema, which has passed ``check_schema``."""

    def __init__(self, schema: StructType) -> None:
        # Spark requires each batch to have exactly this schema.
        self.schema = spark_arrow_schema(schema)
        self._columns = [(*_SHAPERS[each.name.lower()], each.type) for each in self.schema]

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the chosen columns in Spark's types. Raise DataError if Spark has no value."""
        arrays = []
        for name, shape, kind in self._columns:
            if name == "error":
                arrays.append(pa.nulls(batch.num_rows, kind))
                continue
            column = batch.column(name)
            try:
                arrays.append(column if shape is None else shape(column, kind))
            except pa.ArrowInvalid:
                raise _timestamp_error(batch) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def rows_of(self, skipped: Sequence[SkippedData]) -> pa.RecordBatch:
        """Return a row for each piece of skipped data. Its key, value and headers are null."""
        rows = {
            "topic": [each.topic_partition.topic for each in skipped],
            "partition": [each.topic_partition.partition for each in skipped],
            "offset": [each.offset for each in skipped],
            # As for a record without a timestamp.
            "timestamp": [-US_PER_MS] * len(skipped),
            "timestampType": [-1] * len(skipped),
            "error": [
                {"reason": each.reason, "next_offset": each.next_offset, "raw": each.raw}
                for each in skipped
            ],
        }
        arrays = [
            pa.array(rows.get(name, [None] * len(skipped)), kind) for name, _, kind in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that each batch for Spark has to have."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark 4.0 and 4.1, where it is UTC
        return to_arrow_schema(schema)


def _text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # Text that is not UTF-8 keeps its bytes, as with CAST(value AS STRING).
    return column if kind == column.type else column.view(kind)


def _timestamp(column: pa.Array, kind: pa.DataType) -> pa.Array:
    milliseconds = column.view(pa.int64())
    if milliseconds.null_count:
        # Spark's own source uses -1 ms for a record without a timestamp.
        milliseconds = milliseconds.fill_null(_number(pa.int64(), -1))
    return pc.multiply_checked(milliseconds, _number(pa.int64(), US_PER_MS)).view(kind)


def _number(kind: pa.DataType, number: int) -> pa.Scalar:
    """Return what pa.scalar() returns, without its import of pandas."""
    data = number.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def _timestamp_error(batch: pa.RecordBatch) -> DataError:
    """Return the error for a timestamp outside the range of Spark's microseconds."""
    stamps = batch.column("timestamp").view(pa.int64())
    row = next(
        at for at, each in enumerate(stamps) if abs(each.as_py() or 0) > (1 << 63) // US_PER_MS
    )
    place = _place(batch, row)
    offset = batch.column("offset")[row].as_py()
    return DataError(
        f"{place.topic}-{place.partition}, offset {offset}: Spark cannot hold the timestamp "
        f"{stamps[row].as_py()} ms. Its producer may have written microseconds or nanoseconds. "
        "Leave the column out with .schema(...)",
        topic_partition=place,
        offset=offset,
        next_offset=offset + 1,
    )


def _headers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return null for records without headers, as Spark's own source does."""
    some = pc.greater(pc.list_value_length(column), _number(pa.int32(), 0))
    # A null start gives a null list. The next start is its end.
    starts = pc.if_else(some, column.offsets[:-1], pa.nulls(1, pa.int32())[0])
    item: pa.Field = kind.value_field
    struct = pa.StructArray.from_arrays(
        [column.values.field(number) for number in range(2)],
        fields=[item.type.field(number) for number in range(2)],
    )
    ends = pa.concat_arrays([starts, column.offsets[-1:]])
    return pa.ListArray.from_arrays(ends, struct, type=kind)


_SHAPERS: dict[str, tuple[str, Callable[[pa.Array, Any], pa.Array] | None]] = {
    "key": ("key", _text),
    "value": ("value", _text),
    "topic": ("topic", None),
    "partition": ("partition", None),
    "offset": ("offset", None),
    "timestamp": ("timestamp", _timestamp),
    "timestamptype": ("timestampType", None),
    "headers": ("headers", _headers),
    "error": ("error", None),
}


class PartitionRows(NamedTuple):
    """Rows ``start`` to ``stop`` of a batch, which belong to one partition."""

    topic_partition: TopicPartition
    start: int
    stop: int


def partition_rows(batch: pa.RecordBatch) -> Iterator[PartitionRows]:
    """Yield the rows of each partition. A batch of ``poll_arrow()`` has them together."""
    start, rows = 0, batch.num_rows
    while start < rows:
        place = _place(batch, start)

        def is_other(row: int, place: TopicPartition = place) -> bool:
            return _place(batch, row) != place

        stop = bisect_left(range(rows), True, start + 1, key=is_other)
        yield PartitionRows(place, start, stop)
        start = stop


def first_row_at(batch: pa.RecordBatch, rows: PartitionRows, end: int) -> int:
    """Return the first of the rows with offset ``end`` or a later one."""
    offsets = batch.column("offset")
    return bisect_left(range(rows.stop), end, rows.start, key=lambda row: int(offsets[row].as_py()))


def split_batch(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield parts of at most about ``max_bytes``, or of one row."""
    while batch.num_rows > 1 and batch.nbytes > max_bytes:
        half = bisect_right(
            range(1, batch.num_rows), max_bytes, key=lambda rows: int(batch.slice(0, rows).nbytes)
        )
        half = max(1, half)
        yield batch.slice(0, half)
        batch = batch.slice(half)
    yield batch


def _place(batch: pa.RecordBatch, row: int) -> TopicPartition:
    return TopicPartition(
        batch.column("topic")[row].as_py(), batch.column("partition")[row].as_py()
    )
