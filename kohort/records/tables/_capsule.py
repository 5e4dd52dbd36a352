"""Arrow PyCapsule interface of rows, by the compiled module where it was built, else by pyarrow.

ctypes is not used. A consumer of a structure may release it while an exception propagates, and a
callback in Python would lose that exception.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from kohort.records.tables._arrow import arrow_schema, record_batch
from kohort.records.tables._table import Table
from kohort.records.tables._table_decoder_choice import capsules

if TYPE_CHECKING:
    import pyarrow as pa

ArrayNode: TypeAlias = tuple[int, int, int, tuple[memoryview | None, ...]]
"""Length, offset, null count and buffers of an array, as in _capsule.h. -1 means not counted."""

_UNKNOWN = -1


def schema_capsule() -> object:
    """Return an ``arrow_schema``."""
    if capsules is not None:
        return capsules.schema_capsule()
    _require_pyarrow()
    return arrow_schema().__arrow_c_schema__()


def array_capsules(table: Table, rows: range) -> tuple[object, object]:
    """Return an ``arrow_schema`` and an ``arrow_array`` of rows, which keeps the table alive."""
    if capsules is not None:
        nodes = _nodes(table, rows)
        return capsules.schema_capsule(), capsules.array_capsule(nodes, table.buffers)
    both: tuple[object, object] = _by_pyarrow(table, rows).__arrow_c_array__()
    return both


def stream_capsule(parts: Sequence[tuple[Table, range]]) -> object:
    """Return an ``arrow_array_stream`` of rows of tables, which keeps the tables alive."""
    if capsules is not None:
        nodes = [(_nodes(table, rows), table.buffers) for table, rows in parts]
        return capsules.stream_capsule(nodes)
    _require_pyarrow()
    import pyarrow as pa

    batches = [_by_pyarrow(table, rows) for table, rows in parts]
    return pa.RecordBatchReader.from_batches(arrow_schema(), batches).__arrow_c_stream__()


def _by_pyarrow(table: Table, rows: range) -> pa.RecordBatch:
    _require_pyarrow()
    return record_batch(table).slice(rows.start, len(rows))


def _require_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        raise ImportError(
            "this installation of kohort has no compiled modules, and without them its columns "
            "need pyarrow to be taken as Arrow: pip install 'kohort[arrow]'"
        )


def _nodes(table: Table, rows: range) -> Iterator[ArrayNode]:
    """Yield parents before their children, in the order of the schema."""
    buffers, length, start = table.buffers, len(rows), rows.start

    def node(*names: str, nulls: str | None = None) -> ArrayNode:
        valid = None if nulls is None else buffers[nulls]
        count = 0 if nulls is None else _UNKNOWN
        return length, start, count, (valid, *(buffers[name] for name in names))

    yield length, 0, 0, (None,)
    yield node("key_ends", "key", nulls="key_valid")
    yield node("value_ends", "value", nulls="value_valid")
    yield node("topic_ends", "topic")
    yield node("partition")
    yield node("offset")
    yield node("timestamp", nulls="timestamp_valid")
    yield node("timestamp_type")
    yield node("header_ends")
    yield table.headers, 0, 0, (None,)
    yield table.headers, 0, 0, (None, *_header_names(table))
    values = buffers["header_value_valid"], buffers["header_value_ends"], buffers["header_value"]
    yield table.headers, 0, _UNKNOWN, values


def _header_names(table: Table) -> tuple[memoryview, memoryview]:
    """Return the ends and the text of header names. Invalid UTF-8 is replaced."""
    buffers = table.buffers
    ends, names = buffers["header_name_ends"], buffers["header_name"]
    if "header_text" not in buffers and bytes(names).isascii():
        return ends, names
    if "header_text" not in buffers:
        stops = ends.cast("i")
        texts = [
            str(names[stops[at] : stops[at + 1]], "utf-8", "replace").encode()
            for at in range(table.headers)
        ]
        buffers["header_text_ends"] = memoryview(
            array("i", accumulate(map(len, texts), initial=0))
        ).cast("B")
        buffers["header_text"] = memoryview(b"".join(texts))  # kept for further calls
    return buffers["header_text_ends"], buffers["header_text"]
