"""RecordColumns: the rows of one partition as columns that are read in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, overload

from kohort.records._capsule import array_capsules, schema_capsule, stream_capsule
from kohort.records._record import ConsumerRecord, Headers, Record
from kohort.records._table import Table, TablePlan


class BytesColumn(Sequence["memoryview | None"]):
    """Keys or values as read-only views of their bytes, or None for null. Nothing is copied."""

    __slots__ = ("_data", "_ends", "_rows", "_valid")

    def __init__(self, ends: memoryview, data: memoryview, valid: memoryview, rows: range) -> None:
        self._ends = ends
        self._data = data
        self._valid = valid
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> memoryview | None: ...

    @overload
    def __getitem__(self, index: slice) -> BytesColumn: ...

    def __getitem__(self, index: int | slice) -> memoryview | BytesColumn | None:
        if isinstance(index, slice):
            return BytesColumn(self._ends, self._data, self._valid, self._rows[index])
        return self._at(self._rows[index])

    def __iter__(self) -> Iterator[memoryview | None]:
        rows, data, valid = self._rows, self._data, self._valid
        if rows.step != 1:
            yield from map(self._at, rows)
            return
        ends = self._ends[rows.start : rows.stop + 1].tolist()
        for row, (start, stop) in zip(rows, pairwise(ends), strict=True):
            yield data[start:stop] if valid[row >> 3] >> (row & 7) & 1 else None

    def _at(self, row: int) -> memoryview | None:
        if not self._valid[row >> 3] >> (row & 7) & 1:
            return None
        return self._data[self._ends[row] : self._ends[row + 1]]

    def __repr__(self) -> str:
        return f"<BytesColumn of {len(self)}>"


class RecordColumns:
    """Records of one partition, column by column, in memory that does not change.

    All columns are read-only views that stay valid. The columns of one poll_batches() share one
    piece of memory, which is freed with the last view. Deserializers did not run. Libraries that
    take Arrow's PyCapsules accept these objects, such as pyarrow, polars, DuckDB and pandas.
    """

    __module__ = "kohort"

    __slots__ = ("_rows", "_table", "partition", "topic")

    def __init__(self, table: Table, topic: str, partition: int, rows: range) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def offsets(self) -> memoryview:
        """Offsets as int64, rising, with gaps of compaction and transactions."""
        return self._numbers("offset", "q")

    @property
    def timestamps(self) -> memoryview:
        """Timestamps as int64 milliseconds since the epoch, or -1 if unknown."""
        return self._numbers("timestamp", "q")

    @property
    def timestamp_types(self) -> memoryview:
        """Timestamp types as int32: 0 CreateTime, 1 LogAppendTime, -1 none in message format 0."""
        return self._numbers("timestamp_type", "i")

    @property
    def keys(self) -> BytesColumn:
        """View of the bytes of each key, or None for null."""
        return self._bytes("key", self._rows)

    @property
    def values(self) -> BytesColumn:
        """View of the bytes of each value, or None for null."""
        return self._bytes("value", self._rows)

    def headers(self, index: int) -> Headers:
        """Return the headers of one record, as in ConsumerRecord."""
        ends, row = self._table.buffers["header_ends"].cast("i"), self._rows[index]
        return self._headers(ends[row], ends[row + 1])[0]

    def records(self) -> Iterator[Record]:
        """Yield an object for each record. The leader epoch is not known."""
        rows = self._rows
        ends = self._table.buffers["header_ends"].cast("i")[rows.start : rows.stop + 1].tolist()
        columns = self.offsets, self.timestamps, self.timestamp_types, self.keys, self.values
        for (offset, timestamp, kind, key, value), (start, stop) in zip(
            zip(*columns, strict=True), pairwise(ends), strict=True
        ):
            headers, size = self._headers(start, stop)
            yield ConsumerRecord(
                self.topic,
                self.partition,
                offset=offset,
                timestamp=timestamp,
                timestamp_type=kind,
                key=None if key is None else bytes(key),
                value=None if value is None else bytes(value),
                headers=headers,
                serialized_key_size=-1 if key is None else len(key),
                serialized_value_size=-1 if value is None else len(value),
                serialized_header_size=size,
            )

    def __arrow_c_schema__(self) -> object:
        """Return the schema of poll_arrow() as an Arrow PyCapsule."""
        return schema_capsule()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the rows without a copy. ``requested_schema`` is ignored, as Arrow allows."""
        return array_capsules(self._table, self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of one batch."""
        return stream_capsule(self._table, self._rows)

    def __repr__(self) -> str:
        span = f", offsets {self.offsets[0]} to {self.offsets[-1]}" if len(self) else ""
        return f"<RecordColumns of {self.topic}-{self.partition}: {len(self)} records{span}>"

    def _headers(self, start: int, stop: int) -> tuple[Headers, int]:
        """Return headers of the table and their size in bytes, which is -1 without headers."""
        if start == stop:
            return (), -1
        buffers = self._table.buffers
        which = range(start, stop)
        ends, names = buffers["header_name_ends"].cast("i"), buffers["header_name"]
        value_ends = buffers["header_value_ends"].cast("i")
        headers = tuple(
            (
                str(names[ends[at] : ends[at + 1]], "utf-8", "replace"),
                None if value is None else bytes(value),
            )
            for at, value in zip(which, self._bytes("header_value", which), strict=True)
        )
        return headers, ends[stop] - ends[start] + value_ends[stop] - value_ends[start]

    def _numbers(self, name: str, form: Literal["q", "i"]) -> memoryview:
        return self._table.buffers[name].cast(form)[self._rows.start : self._rows.stop]

    def _bytes(self, name: str, rows: range) -> BytesColumn:
        buffers = self._table.buffers
        return BytesColumn(
            buffers[f"{name}_ends"].cast("i"), buffers[name], buffers[f"{name}_valid"], rows
        )


def to_columns(plan: TablePlan) -> list[RecordColumns]:
    """Return the rows of a plan, with adjacent rows of one partition together."""
    table = plan.build()
    buffers = {name: view.toreadonly() for name, view in table.buffers.items()}
    table = table._replace(buffers=buffers)
    return [RecordColumns(table, topic, partition, rows) for topic, partition, rows in plan.runs()]
