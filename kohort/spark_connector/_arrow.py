"""From records to Arrow, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kohort import ConsumerRecord, TopicPartition
from kohort.errors import DataError

Record = ConsumerRecord[bytes, bytes]
Records = Sequence[Record]


class BatchBuilder:
    """Makes record batches of one schema, which has passed ``check_schema``."""

    def __init__(self, schema: StructType) -> None:
        # Spark compares the schema of a batch with just this one.
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [(_BUILDERS[each.name.lower()], each.type) for each in self.schema]

    def build(self, records: Records) -> pa.RecordBatch:
        """One batch of records, all of the same partition. DataError for what Spark cannot hold."""
        arrays = [build(records, kind) for build, kind in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _bytes(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, pa.binary())
    # As with CAST(value AS STRING), text that is not UTF-8 stays the bytes it is.
    return array if kind == pa.binary() else array.view(kind)


def _key(records: Records, kind: pa.DataType) -> pa.Array:
    return _bytes([record.key for record in records], kind)


def _value(records: Records, kind: pa.DataType) -> pa.Array:
    return _bytes([record.value for record in records], kind)


def _topic(records: Records, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(records[0].topic, kind), len(records))


def _partition(records: Records, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(records[0].partition, kind), len(records))


def _offset(records: Records, kind: pa.DataType) -> pa.Array:
    return pa.array([record.offset for record in records], kind)


def _timestamp(records: Records, kind: pa.DataType) -> pa.Array:
    milliseconds = pa.array([record.timestamp for record in records], pa.int64())
    try:
        return pc.multiply_checked(milliseconds, 1000).view(kind)
    except pa.ArrowInvalid:
        raise _beyond(records) from None


def _beyond(records: Records) -> DataError:
    """The error for a timestamp that Spark's microseconds have no room for."""
    bad = next(record for record in records if abs(record.timestamp) > (1 << 63) // 1000)
    return DataError(
        f"{bad.topic}-{bad.partition}, offset {bad.offset}: Spark cannot hold the timestamp "
        f"{bad.timestamp} ms; read without it by .schema(...)",
        topic_partition=TopicPartition(bad.topic, bad.partition),
        offset=bad.offset,
        next_offset=bad.offset + 1,
    )


def _timestamp_type(records: Records, kind: pa.DataType) -> pa.Array:
    return pa.array([record.timestamp_type for record in records], kind)


def _headers(records: Records, kind: pa.DataType) -> pa.Array:
    """Null for a record without headers, as in Spark's own source."""
    names: list[str] = []
    values: list[bytes | None] = []
    starts: list[int | None] = []
    for record in records:
        # A null start makes a null list, which ends where the next one starts.
        starts.append(len(names) if record.headers else None)
        for name, value in record.headers:
            names.append(name)
            values.append(value)
    starts.append(len(names))
    item: pa.Field = kind.value_field
    struct = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())],
        fields=[item.type.field(number) for number in range(2)],
    )
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), struct, type=kind)


_BUILDERS: dict[str, Callable[[Records, Any], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestamptype": _timestamp_type,
    "headers": _headers,
}
