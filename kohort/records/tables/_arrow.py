"""Tables as a pyarrow.RecordBatch over the same memory. Only this module needs pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from kohort.records.tables._table import Table, TablePlan

if TYPE_CHECKING:
    import pyarrow as pa


@cache  # otherwise each poll would create it more than once
def arrow_schema() -> pa.Schema:
    """Return the columns of Spark's Kafka source, with Kafka's milliseconds."""
    import pyarrow as pa

    header = pa.struct(
        [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    )
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("timestampType", pa.int32(), nullable=False),
            pa.field("headers", pa.list_(pa.field("item", header, nullable=False)), nullable=False),
        ]
    )


def allocate_in_arrow(size: int) -> memoryview:
    """Allocate memory of pyarrow's pool, which reuses it."""
    return memoryview(_allocate()(size)).cast("B")


@cache  # an import statement takes time at each call
def _allocate() -> Callable[[int], pa.Buffer]:
    import pyarrow as pa

    allocate: Callable[[int], pa.Buffer] = pa.allocate_buffer
    return allocate


def to_arrow(plan: TablePlan) -> pa.RecordBatch:
    """Return the rows of a plan over the same memory."""
    return record_batch(plan.build())


def record_batch(table: Table) -> pa.RecordBatch:
    """Return a table over the same memory."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(_arrays(table), schema=arrow_schema())


def _arrays(table: Table) -> list[pa.Array]:
    import pyarrow as pa

    rows, views = table.rows, table.buffers
    kinds = _kinds()
    wrap, array = pa.py_buffer, pa.Array.from_buffers

    def column(name: str, *buffers: str | None) -> pa.Array:
        parts = [None if each is None else wrap(views[each]) for each in buffers]
        return array(kinds[name], rows, parts)

    headers = _headers(table) if table.headers else _no_headers()
    return [
        column("key", "key_valid", "key_ends", "key"),
        column("value", "value_valid", "value_ends", "value"),
        column("topic", None, "topic_ends", "topic"),
        column("partition", None, "partition"),
        column("offset", None, "offset"),
        column("timestamp", "timestamp_valid", "timestamp"),
        column("timestampType", None, "timestamp_type"),
        array(kinds["headers"], rows, [None, wrap(views["header_ends"])], children=[headers]),
    ]


@cache
def _kinds() -> dict[str, pa.DataType]:
    """Return the types of the columns. A look-up in a schema creates an object each time."""
    return {field.name: field.type for field in arrow_schema()}


@cache
def _no_headers() -> pa.Array:
    import pyarrow as pa

    return pa.nulls(0, _kinds()["headers"].value_type)


def _headers(table: Table) -> pa.Array:
    """Return the headers of all rows, one after another."""
    import pyarrow as pa

    buffers = {name: pa.py_buffer(view) for name, view in table.buffers.items()}

    def strings(name: str, valid: pa.Buffer | None) -> pa.Array:
        parts = [valid, buffers[f"{name}_ends"], buffers[name]]
        return pa.Array.from_buffers(pa.binary(), table.headers, parts)

    return pa.Array.from_buffers(
        _kinds()["headers"].value_type,
        table.headers,
        [None],
        children=[
            _names(strings("header_name", None), buffers),
            strings("header_value", buffers["header_value_valid"]),
        ],
    )


def _names(raw: pa.Array, buffers: dict[str, pa.Buffer]) -> pa.Array:
    """Return the names of headers as text. Invalid UTF-8 is replaced, as in ConsumerRecord."""
    import pyarrow as pa

    if bytes(buffers["header_name"]).isascii():
        return raw.view(pa.string())
    # pa.array() of a list would import pandas.
    names = [name.decode("utf-8", "replace").encode() for name in raw.to_pylist()]
    ends = array("i", accumulate(map(len, names), initial=0))
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(names))]
    return pa.Array.from_buffers(pa.string(), len(names), parts)
