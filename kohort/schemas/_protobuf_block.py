"""Many Protobuf messages of one type as one Arrow array.

The data of messages, each after a tag and its length, are one message with a repeated field. So
protobuf's C code parses many of them in one call. Python reads the fields, column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.schemas._blocks import NOT_STORED, Block, joined
from kohort.schemas._deserializer import Failure
from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LateModule("pyarrow")
    pc = LateModule("pyarrow.compute")

TAG = b"\x0a"
"""The field 1, whose data have a length."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999 of a Timestamp."""
MOST_SECONDS = 315_576_000_000
"""Seconds of the longest Duration."""
BILLION = 1_000_000_000
MANY = 1 << 16
"""Messages that exist at the same time."""

Absent = list[bool] | None
"""True for each value that is null. None: no value is."""
Stored = Callable[[Sequence[Any], Absent], Any]
"""Returns values as an array of their type."""


class _Column(NamedTuple):
    """The type of a field or of a message, and the function that fills an array."""

    arrow: pa.DataType
    stored: Stored


def protobuf_block(message_type: Any) -> Block:
    """Return how messages are decoded. Raises UnsupportedSchemaError for types without a column."""
    column = _message(message_type.DESCRIPTOR, ())
    rows_type = _rows_type(message_type.DESCRIPTOR)

    def at_once(bodies: pa.Array) -> pa.Array | None:
        from google.protobuf.message import DecodeError

        parts = []
        try:
            for start in range(0, len(bodies), MANY):
                messages = rows_type.FromString(_as_rows(bodies.slice(start, MANY))).rows
                parts.append(column.stored(messages, None))
        except (DecodeError, *NOT_STORED):
            return None
        return pa.concat_arrays(parts)

    def one_by_one(bodies: pa.Array) -> tuple[pa.Array, list[Failure]]:
        messages: list[Any] = []
        failures: list[Failure] = []
        absent = [False] * len(bodies)
        for row, body in enumerate(bodies.to_pylist()):
            try:
                messages.append(message_type.FromString(body))
                column.stored(messages[row:], None)
            except Exception as error:
                messages[row:] = [message_type()]
                absent[row] = True
                failures.append((row, error))
        return column.stored(messages, absent), failures

    return Block(column.arrow, at_once, one_by_one)


def _rows_type(descriptor: Any) -> Any:
    """Return the class of a message that has other messages in its field ``rows``."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool: Any = DescriptorPool()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name not in added:
            added.add(file.name)
            for each in file.dependencies:
                add(each)
            pool.AddSerializedFile(file.serialized_pb)

    add(descriptor.file)
    file = FileDescriptorProto(name="kohort.rows", package="kohort.rows", syntax="proto3")
    file.dependency.append(descriptor.file.name)
    file.message_type.add(name="Rows").field.add(
        name="rows",
        number=1,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{descriptor.full_name}",
    )
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("kohort.rows.Rows"))


def _as_rows(bodies: pa.Array) -> bytes:
    """Return the data of a message with ``bodies`` in its field 1."""
    lengths = pc.binary_length(bodies)
    each_length = lengths.unique()
    heads = pa.array([TAG + _varint(each) for each in each_length.to_pylist()], pa.large_binary())
    before = heads.take(pc.index_in(lengths, value_set=each_length))
    nothing = pa.scalar(b"", pa.large_binary())
    whole: bytes = joined(pc.binary_join_element_wise(before, bodies, nothing)).to_pybytes()
    return whole


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _message(descriptor: Any, outer: tuple[str, ...]) -> _Column:
    """Return the column of a message. ``outer`` has the names of the enclosing messages."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return _Column(pa.timestamp("us", "UTC"), _timestamps)
    if name == "google.protobuf.Duration":
        return _Column(pa.duration("us"), _durations)
    if name.startswith("google.protobuf.") and descriptor.file.name.endswith("/wrappers.proto"):
        inner = _single(descriptor.fields[0], ())
        value = attrgetter("value")
        return _Column(
            inner.arrow, lambda values, absent: inner.stored(list(map(value, values)), absent)
        )
    if name in outer:
        raise UnsupportedSchemaError(
            f"{name} contains itself, which is no column. Read such a topic with a deserializer"
        )
    fields = [(field.name, _field(field, (*outer, name))) for field in descriptor.fields]
    kind = pa.struct([(field, column.arrow) for field, column in fields])

    def stored(values: Sequence[Any], absent: Absent) -> pa.Array:
        mask = None if absent is None and fields else pa.array(absent or [False] * len(values))
        parts = [column.stored(values, None) for _, column in fields]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)

    return _Column(kind, stored)


def _field(field: Any, outer: tuple[str, ...]) -> _Column:
    """Return the column of a field, which takes the messages that have it."""
    read = attrgetter(field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, read, outer)
    single = _single(field, outer)
    if field.is_repeated:
        kind = pa.large_list(single.arrow)

        def lists(messages: Sequence[Any], _: Absent) -> pa.Array:
            values = list(map(read, messages))
            items = single.stored(list(chain.from_iterable(values)), None)
            return pa.LargeListArray.from_arrays(_ends(values, pa.int64()), items, type=kind)

        return _Column(kind, lists)
    if field.has_presence:
        name = field.name

        def optional(messages: Sequence[Any], _: Absent) -> pa.Array:
            absent = [not message.HasField(name) for message in messages]
            return single.stored(list(map(read, messages)), absent if any(absent) else None)

        return _Column(single.arrow, optional)
    return _Column(single.arrow, lambda messages, _: single.stored(list(map(read, messages)), None))


def _map(field: Any, read: Callable[[Any], Any], outer: tuple[str, ...]) -> _Column:
    key, item = (_single(each, outer) for each in field.message_type.fields)
    kind = pa.map_(key.arrow, item.arrow)

    def stored(messages: Sequence[Any], _: Absent) -> pa.Array:
        values = list(map(read, messages))
        keys = [key for each in values for key in each]
        items = [each[key] for each in values for key in each]
        return pa.MapArray.from_arrays(
            _ends(values, pa.int32()), key.stored(keys, None), item.stored(items, None)
        ).cast(kind)

    return _Column(kind, stored)


def _ends(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return where each list begins in the items of all, and the end of the last one."""
    return pa.array(accumulate(map(len, values), initial=0), kind)


def _single(field: Any, outer: tuple[str, ...]) -> _Column:
    """Return the column of the values of a field, of which it may have many."""
    if field.message_type is not None:
        return _message(field.message_type, outer)
    if field.enum_type is not None:
        names = _Names((each.number, each.name) for each in reversed(field.enum_type.values))
        text = pa.large_string()
        return _Column(
            text,
            lambda values, absent: _scalars(list(map(names.__getitem__, values)), absent, text),
        )
    kind = _kinds()[field.cpp_type] if field.type != field.TYPE_BYTES else pa.large_binary()
    return _Column(kind, lambda values, absent: _scalars(values, absent, kind))


def _kinds() -> dict[int, pa.DataType]:
    from google.protobuf.descriptor import FieldDescriptor

    return {
        FieldDescriptor.CPPTYPE_INT32: pa.int32(),
        FieldDescriptor.CPPTYPE_INT64: pa.int64(),
        FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
        FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
        FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
        FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
        FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
        FieldDescriptor.CPPTYPE_STRING: pa.large_string(),
    }


class _Names(dict[int, str]):
    """The names of an enum's numbers. An unknown number is its digits."""

    def __missing__(self, number: int) -> str:
        return str(number)


def _scalars(values: Sequence[Any], absent: Absent, kind: pa.DataType) -> pa.Array:
    if absent is not None:
        values = [None if is_null else value for value, is_null in zip(values, absent, strict=True)]
    return pa.array(values, kind)


def _timestamps(values: Sequence[Any], absent: Absent) -> pa.Array:
    return _scalars(
        _microseconds(values, FIRST_SECOND, LAST_SECOND, 0), absent, pa.timestamp("us", "UTC")
    )


def _durations(values: Sequence[Any], absent: Absent) -> pa.Array:
    return _scalars(
        _microseconds(values, -MOST_SECONDS, MOST_SECONDS, 1 - BILLION), absent, pa.duration("us")
    )


def _microseconds(values: Sequence[Any], least: int, most: int, least_nanos: int) -> list[int]:
    """Return times in microseconds, rounded as ``ToDatetime`` and ``ToTimedelta`` do."""
    found = []
    for value in values:
        seconds, nanos = value.seconds, value.nanos
        if not (least <= seconds <= most and least_nanos <= nanos < BILLION):
            raise ValueError(f"{seconds} s and {nanos} ns are out of range")
        micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
        found.append(seconds * 1_000_000 + micros)
    return found
