"""A table as a pyarrow.RecordBatch over the same memory; only this module needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from kohort.records._table import Table, TablePlan

if TYPE_CHECKING:
    import pyarrow as pa


@cache  # made for each poll otherwise, and more than once
def arrow_schema() -> pa.Schema:
    """The columns of Spark's Kafka source, with Kafka's milliseconds."""
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


def in_arrow(size: int) -> memoryview:
    """Memory of pyarrow's own pool, which is used again and again."""
    return memoryview(_allocate()(size)).cast("B")


@cache  # an import statement takes its time each time
def _allocate() -> Callable[[int], pa.Buffer]:
    import pyarrow as pa

    allocate: Callable[[int], pa.Buffer] = pa.allocate_buffer
    return allocate


def to_arrow(plan: TablePlan) -> pa.RecordBatch:
    """The rows of a plan, in the memory that it has."""
    return record_batch(plan.build())


def record_batch(table: Table) -> pa.RecordBatch:
    """A table as it is in memory."""
    import pyarrow as pa

    buffers = {name: pa.py_buffer(view) for name, view in table.buffers.items()}
    return pa.RecordBatch.from_arrays(_arrays(table, buffers), schema=arrow_schema())


def _arrays(table: Table, buffers: dict[str, pa.Buffer]) -> list[pa.Array]:
    import pyarrow as pa

    rows = table.rows
    names = arrow_schema()

    def strings(name: str, count: int, kind: pa.DataType, valid: str | None) -> pa.Array:
        parts = [None if valid is None else buffers[valid], buffers[f"{name}_ends"], buffers[name]]
        return pa.Array.from_buffers(kind, count, parts)

    def numbers(name: str, kind: pa.DataType, valid: str | None = None) -> pa.Array:
        parts = [None if valid is None else buffers[valid], buffers[name]]
        return pa.Array.from_buffers(kind, rows, parts)

    headers = names.field("headers").type
    struct = pa.Array.from_buffers(
        headers.value_type,
        table.headers,
        [None],
        children=[
            _names(strings("header_name", table.headers, pa.binary(), None), buffers),
            strings("header_value", table.headers, pa.binary(), "header_value_valid"),
        ],
    )
    return [
        strings("key", rows, pa.binary(), "key_valid"),
        strings("value", rows, pa.binary(), "value_valid"),
        strings("topic", rows, pa.string(), None),
        numbers("partition", pa.int32()),
        numbers("offset", pa.int64()),
        numbers("timestamp", names.field("timestamp").type, "timestamp_valid"),
        numbers("timestamp_type", pa.int32()),
        pa.Array.from_buffers(headers, rows, [None, buffers["header_ends"]], children=[struct]),
    ]


def _names(raw: pa.Array, buffers: dict[str, pa.Buffer]) -> pa.Array:
    """The names of headers as text; those that are not UTF-8 as in ConsumerRecord."""
    import pyarrow as pa

    if bytes(buffers["header_name"]).isascii():
        return raw.view(pa.string())
    return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
