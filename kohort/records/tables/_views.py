"""RecordColumns: the rows of one partition as columns that are read in place.

It follows these decisions:

1. Its attributes are the names of ``arrow_schema()``, which are those of Spark's Kafka source.
   Hence the spelling of ``timestampType``. ``topic`` and ``partition`` are single values, because
   all rows have the same.
2. ``value[i]`` is bytes, because functions such as ``json.loads`` take no memoryview. ``view(i)``
   is for large values. Arrow, polars and DuckDB read the memory of the table, so they copy nothing.
3. Iteration yields records, as many as ``len()`` says. A data frame yields its columns, but
   RecordColumns stands for the records of a partition. It makes one record at a time. It copies the
   keys and values of at most 64 rows or 64 KiB at once.
4. RecordTable is the one way to make a table of several RecordColumns. It takes any iterable,
   because programs collect the lists of several polls. Adjacent rows of one poll become one chunk
   again. It is an Arrow stream and not a ``pyarrow.Table``, so that polars and DuckDB need no
   pyarrow.
5. A slice has adjacent rows, so that it stays a part of one table. ``filter()`` copies nothing
   either: each run of adjacent rows that it keeps is one RecordColumns.
6. Columns have raw bytes. The first table of a consumer with a deserializer therefore warns. The
   warning comes before any row is taken, so a program that makes it an error loses no rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Literal, overload

from kohort.records._record import ConsumerRecord, Record
from kohort.records.tables._capsule import array_capsules, schema_capsule, stream_capsule
from kohort.records.tables._column_views import BytesColumn, HeadersColumn
from kohort.records.tables._table import Table, TablePlan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""Latest timestamp that a datetime can have."""


class RecordColumns:
    """Records of one partition, column by column, in memory that does not change.

    Each column of :meth:`~kohort.KafkaConsumer.poll_arrow` is an attribute of that name, and
    iteration yields the records. All columns are read-only and stay valid. The columns of one
    poll_batches() share one piece of memory, which is freed with the last of them. Deserializers
    did not run. Libraries that take Arrow's PyCapsules accept these objects, such as pyarrow,
    polars, DuckDB and pandas. They take several of them as a :class:`RecordTable`.
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

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> RecordColumns: ...

    def __getitem__(self, index: int | slice) -> Record | RecordColumns:
        """Return a record, or the columns of adjacent rows. Raise ValueError for a step."""
        if isinstance(index, slice):
            return self._part(_adjacent(len(self), index))
        at = range(len(self))[operator.index(index)]  # raises IndexError
        return next(iter(self._part(range(at, at + 1))))

    def _part(self, rows: range) -> RecordColumns:
        return RecordColumns(
            self._table, self.topic, self.partition, self._rows[rows.start : rows.stop]
        )

    def filter(self, keep: Callable[[Record], object]) -> RecordTable:
        """Return the rows whose record ``keep`` accepts, without a copy.

        Each run of adjacent rows is a chunk of the result. A condition on columns that leaves few
        of many rows is faster in polars or DuckDB.
        """
        return RecordTable(_kept(self, keep))

    def datetimes(self) -> list[datetime | None]:
        """Return the timestamps in UTC. None stands for an unknown one, and for one after 9999."""
        return [
            _EPOCH + timedelta(milliseconds=each) if 0 <= each <= _LAST_MS else None
            for each in self.timestamp
        ]

    @property
    def key(self) -> BytesColumn:
        """Keys as a sequence of bytes, or None for null."""
        return self._bytes("key")

    @property
    def value(self) -> BytesColumn:
        """Values as a sequence of bytes, or None for null."""
        return self._bytes("value")

    @property
    def offset(self) -> memoryview:
        """Offsets as int64, rising, with gaps of compaction and transactions."""
        return self._numbers("offset", "q")

    @property
    def timestamp(self) -> memoryview:
        """Timestamps as int64 milliseconds since the epoch, or -1 if unknown."""
        return self._numbers("timestamp", "q")

    @property
    def timestampType(self) -> memoryview:  # noqa: N802  # the name of Arrow's column
        """Timestamp types as int32: 0 CreateTime, 1 LogAppendTime, -1 none in message format 0."""
        return self._numbers("timestamp_type", "i")

    @property
    def headers(self) -> HeadersColumn:
        """Headers as a sequence of tuples, as in ConsumerRecord."""
        return HeadersColumn(self._table.buffers, self._rows)

    def __iter__(self) -> Iterator[Record]:
        """Yield each record as it is read. The leader epoch is not known."""
        columns = self.offset, self.timestamp, self.timestampType, self.key, self.value
        for (offset, timestamp, kind, key, value), (headers, size) in zip(
            zip(*columns, strict=True), self.headers.with_sizes(), strict=True
        ):
            yield ConsumerRecord(
                self.topic,
                self.partition,
                offset=offset,
                timestamp=timestamp,
                timestamp_type=kind,
                key=key,
                value=value,
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
        return stream_capsule([(self._table, self._rows)])

    def __repr__(self) -> str:
        span = f", offsets {self.offset[0]} to {self.offset[-1]}" if len(self) else ""
        return f"<RecordColumns of {self.topic}-{self.partition}: {len(self)} records{span}>"

    def _numbers(self, name: str, form: Literal["q", "i"]) -> memoryview:
        return self._table.buffers[name].cast(form)[self._rows.start : self._rows.stop]

    def _bytes(self, name: str) -> BytesColumn:
        buffers = self._table.buffers
        return BytesColumn(
            buffers[f"{name}_ends"].cast("i"), buffers[name], buffers[f"{name}_valid"], self._rows
        )


class RecordTable:
    """Columns of any partitions and polls as one table, without a copy.

    ``pyarrow.table(RecordTable(batches))`` makes one chunk from all columns of a poll in their
    order. polars, DuckDB and pandas take the object, too. Without any columns it is a table of no
    rows with all columns.
    """

    __module__ = "kohort"

    __slots__ = ("batches",)

    def __init__(self, batches: Iterable[RecordColumns]) -> None:
        """Take columns in any order. Raises TypeError for anything else, also for one table."""
        if isinstance(batches, RecordColumns | RecordTable):  # both iterate over records
            raise _no_columns(batches)
        self.batches: tuple[RecordColumns, ...] = tuple(batches)
        for each in self.batches:
            if not isinstance(each, RecordColumns):
                raise _no_columns(each)

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> RecordTable: ...

    def __getitem__(self, index: int | slice) -> Record | RecordTable:
        """Return a record, or a table of adjacent rows. Raise ValueError for a step."""
        if isinstance(index, slice):
            return RecordTable(self._parts(_adjacent(len(self), index)))
        at = range(len(self))[operator.index(index)]  # raises IndexError
        [columns] = self._parts(range(at, at + 1))
        return columns[0]

    def _parts(self, rows: range) -> Iterator[RecordColumns]:
        """Yield the columns with these rows of the table."""
        first = 0
        for each in self.batches:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, len(each))
            if start < stop:
                yield each if stop - start == len(each) else each[start:stop]
            first += len(each)

    def filter(self, keep: Callable[[Record], object]) -> RecordTable:
        """Return the rows whose record ``keep`` accepts, as :meth:`RecordColumns.filter` does."""
        return RecordTable(chain.from_iterable(_kept(each, keep) for each in self.batches))

    def __iter__(self) -> Iterator[Record]:
        """Yield the records of all columns, one after another."""
        return chain.from_iterable(self.batches)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of poll_arrow() as an Arrow PyCapsule."""
        return schema_capsule()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream. ``requested_schema`` is ignored, as Arrow allows."""
        return stream_capsule(_joined(self.batches))

    def __repr__(self) -> str:
        return f"<RecordTable of {len(self.batches)} batches: {len(self)} records>"


def _no_columns(given: object) -> TypeError:
    what = type(given).__name__
    if isinstance(given, RecordColumns):
        return TypeError(f"RecordTable needs a list of RecordColumns, not {what}: pass [columns]")
    advice = "pass table.batches" if isinstance(given, RecordTable) else "pass [columns]"
    return TypeError(f"RecordTable needs RecordColumns, not {what}: {advice}")


def _adjacent(count: int, index: slice) -> range:
    """Return the rows of a slice. Raise ValueError for a step."""
    start, stop, step = index.indices(count)
    if step != 1:
        raise ValueError(f"a slice of records has adjacent rows: leave the step {step} out")
    return range(start, max(start, stop))


def _kept(columns: RecordColumns, keep: Callable[[Record], object]) -> Iterator[RecordColumns]:
    """Yield the runs of adjacent rows whose record ``keep`` accepts."""
    start = None
    for index, record in enumerate(columns):
        if not keep(record):
            if start is not None:
                yield columns[start:index]
            start = None
        elif start is None:
            start = index
    if start is not None:
        yield columns[start:]


def _joined(batches: Iterable[RecordColumns]) -> list[tuple[Table, range]]:
    """Return the rows of each table, with adjacent rows together."""
    parts: list[tuple[Table, range]] = []
    for each in batches:
        table, rows = each._table, each._rows
        if parts and parts[-1][0] is table and parts[-1][1].stop == rows.start:
            _, before = parts.pop()
            rows = range(before.start, rows.stop)
        parts.append((table, rows))
    return parts


def to_columns(plan: TablePlan) -> list[RecordColumns]:
    """Return the rows of a plan, with adjacent rows of one partition together."""
    table = plan.build()
    buffers = {name: view.toreadonly() for name, view in table.buffers.items()}
    table = table._replace(buffers=buffers)
    return [RecordColumns(table, topic, partition, rows) for topic, partition, rows in plan.runs()]
