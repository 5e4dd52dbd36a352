"""Many Avro records of one schema as one Arrow array, without a step of Python for each.

The data of records, one after another, are the block of an Avro container. So a header and the
joined data are a file in memory that polars reads.

Invariants:

1. Each record of the block begins with eight bytes that count up from a random number. polars reads
   them as a double. Otherwise a record with bytes too many or too few would shift the others,
   because polars checks neither its end nor that of the block. If a number does not come back, no
   row of the block is used.
2. A block that fails is halved, and few records are read by fastavro (``decode_block``). So the
   result does not depend on the reader.
3. Both readers give the type of ``AvroTypes``.

polars may read a record that has the right length and breaks a rule of Avro, such as a boolean of
2. For some bad data it panics, which prints lines to the standard error stream.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kohort.schemas._avro_evolution import branch, evolved, is_covered
from kohort.schemas._avro_types import AvroType
from kohort.schemas._blocks import Block, joined, values_one_by_one
from kohort.schemas._deserializer import Failure
from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LateModule("pyarrow")
    pc = LateModule("pyarrow.compute")

SYNC = b"kohort's columns"
"""The marker after each block of a container: any 16 bytes."""

DecodeOne = Callable[[bytes], Any]


def avro_block(written: AvroType, wanted: AvroType, decode_one: DecodeOne) -> Block:
    """Return how records are decoded from the writer's type to the wanted one."""

    def at_once(bodies: pa.Array) -> pa.Array | None:
        values = _at_once(bodies, written)
        if values is None or written is wanted:
            return values
        return evolved(values, written.plain, wanted.plain, wanted.arrow)

    def one_by_one(bodies: pa.Array) -> tuple[pa.Array, list[Failure]]:
        return values_one_by_one(
            bodies, wanted.arrow, lambda body: _storable(decode_one(body), wanted.arrow)
        )

    plain = written.plain
    is_whole = plain is not None and (written is wanted or is_covered(plain, wanted.plain))
    return Block(wanted.arrow, at_once if is_whole else None, one_by_one)


def _storable(value: Any, kind: pa.DataType) -> Any:
    """Return a value as pyarrow takes it: UUIDs as text, dicts of a map as pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            kind.field(index).name: _storable(
                value.get(kind.field(index).name), kind.field(index).type
            )
            for index in range(kind.num_fields)
        }
    if pa.types.is_large_list(kind):
        return [_storable(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(key, _storable(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_large_binary(kind) and isinstance(value, str):
        return value.encode("latin-1")  # fastavro returns the default of bytes as it is in JSON
    return str(value) if pa.types.is_large_string(kind) else value


def _at_once(bodies: pa.Array, of: AvroType) -> pa.Array | None:
    """Return the values of a block, or None if one of its records may be bad."""
    import polars as pl

    count = len(bodies)
    first = secrets.randbits(61)
    marks = _marks(first, count)
    is_record = isinstance(of.plain, dict) and of.plain["type"] == "record"
    fields = of.plain["fields"] if is_record else [{"name": "value", "type": of.plain}]
    mark = "mark"
    while any(field["name"] == mark for field in fields):
        mark += "_"
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": mark, "type": "double"}, *fields],
    }
    try:
        frame = pl.read_avro(BytesIO(_container(schema, count, _joined(marks, bodies))))
        table = frame.to_arrow()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None
    if table.num_rows != count:
        return None
    found = table.column(mark).combine_chunks()
    if not found.view(pa.int64()).equals(marks):
        return None
    kinds = [field.type for field in of.arrow] if is_record else [of.arrow]
    try:
        columns = [
            _restored(table.column(field["name"]).combine_chunks(), field["type"], kind)
            for field, kind in zip(fields, kinds, strict=True)
        ]
    except IndexError:
        return None
    if not is_record:
        return columns[0]
    mask = None if columns else pa.repeat(False, count)  # so that it has a length
    return pa.StructArray.from_arrays(columns, fields=list(of.arrow), mask=mask)


def _restored(array: pa.Array, plain: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of polars as its type. Raises IndexError for an enum without the symbol."""
    plain = branch(plain)
    if not _has_enum(plain):
        return array.cast(kind)
    if plain["type"] == "int":
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and not 0 <= low <= high < len(plain["symbols"]):
            raise IndexError
        return pa.DictionaryArray.from_arrays(array, pa.array(plain["symbols"], kind)).cast(kind)
    if plain["type"] == "record":
        parts = [
            _restored(part, field["type"], inner.type)
            for part, field, inner in zip(array.flatten(), plain["fields"], kind, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    items = _restored(array.values, plain["items"], kind.value_type)
    mask = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(array.offsets, items, type=kind, mask=mask)


def _has_enum(plain: Any) -> bool:
    if isinstance(plain, list):
        return any(map(_has_enum, plain))
    if not isinstance(plain, dict):
        return False
    inner = [field["type"] for field in plain.get("fields", ())]
    return "symbols" in plain or any(map(_has_enum, [*inner, plain.get("items")]))


def _marks(first: int, count: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first)


def _joined(marks: pa.Array, bodies: pa.Array) -> pa.Buffer:
    """Return the data of all rows with their marks, one after another."""
    raw = pa.Array.from_buffers(
        pa.binary(8), len(marks), [None, marks.buffers()[1]], offset=marks.offset
    )
    nothing = pa.scalar(b"", pa.large_binary())
    return joined(pc.binary_join_element_wise(raw.cast(pa.large_binary()), bodies, nothing))


def _container(schema: Any, count: int, block: pa.Buffer) -> bytes:
    """Return an Avro object container file with one block, which is not compressed."""
    text = json.dumps(schema).encode()
    return b"".join(
        [
            b"Obj\x01",
            _long(2),
            *(_long(11), b"avro.schema", _long(len(text)), text),
            *(_long(10), b"avro.codec", _long(4), b"null"),
            _long(0),
            SYNC,
            _long(count),
            _long(block.size),
            block,
            SYNC,
        ]
    )


def _long(number: int) -> bytes:
    """Return a number of Avro that is not negative."""
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
