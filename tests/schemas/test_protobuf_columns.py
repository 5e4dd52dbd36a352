"""Protobuf values as columns: equal to messages, whatever the schemas, framings and bad rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from kohort import RecordDeserializationError
from kohort.schemas import (
    FramingError,
    ProtobufDeserializer,
    Schema,
    SchemaMismatchError,
    SchemaRegistry,
    UnsupportedSchemaError,
    columns,
)
from kohort.schemas._blocks import FEW
from tests.schemas.framed import framed, table
from tests.schemas.random_protobuf import RandomProtobuf
from tests.schemas.test_protobuf import file, text

pa = pytest.importorskip("pyarrow")
pytest.importorskip("polars")
pytest.importorskip("google.protobuf")

GUID = UUID(int=5)


def registry(*descriptors: Any) -> SchemaRegistry:
    found = SchemaRegistry("http://127.0.0.1:9", timeout_ms=1)
    for schema_id, each in enumerate(descriptors, 1):
        found._schemas[schema_id] = Schema(text(each), "PROTOBUF")
    return found


def column(rows: Any, deserializer: ProtobufDeserializer, **options: Any) -> Any:
    decoded = columns(table(rows, options.pop("headers", None)), value=deserializer, **options)
    return decoded.column("value").to_pylist()


def plain(value: Any) -> Any:
    """Return a message as pyarrow returns it."""
    if isinstance(value, datetime | timedelta) or not hasattr(value, "DESCRIPTOR"):
        return value
    if value.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return value.ToDatetime(UTC)
    found: dict[str, Any] = {}
    for field in value.DESCRIPTOR.fields:
        inner = getattr(value, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = [(key, plain(inner[key])) for key in inner]
        elif field.is_repeated:
            found[field.name] = [named(field, plain(each)) for each in inner]
        elif field.has_presence and not value.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = named(field, plain(inner))
    return found


def named(field: Any, value: Any) -> Any:
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name


def zigzag(*numbers: int) -> bytes:
    return bytes(2 * each for each in numbers)


def contains_itself(descriptor: Any, outer: tuple[str, ...] = ()) -> bool:
    if descriptor.full_name in outer:
        return True
    inner = [each.message_type for each in descriptor.fields if each.message_type is not None]
    return any(contains_itself(each, (*outer, descriptor.full_name)) for each in inner)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_columns_equal_messages_for_random_schemas(seed: int, monkeypatch: Any) -> None:
    """Twenty files each, in all framings, as a class of theirs and of the schema."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 4)
    equal = 0
    for number in range(20):
        source = RandomProtobuf(20 * seed + number)
        found = registry(source.file)
        found._schemas[GUID] = found._schemas[1]
        chosen = source.random.randrange(len(source.places))
        place, message_type = source.places[chosen][0], source.classes[chosen]
        by_schema = ProtobufDeserializer(found)
        index = zigzag(len(place), *place)
        messages = [source.message(message_type) for _ in range(12)]
        bodies = [each.SerializeToString() for each in messages]
        rows: list[bytes | None] = [framed(1, index + body) for body in bodies]
        rows[3], rows[5] = None, framed(GUID, index + bodies[5])
        rows[7], headers = bodies[7], {7: [("__value_schema_id", b"\x01" + GUID.bytes + index)]}
        if contains_itself(message_type.DESCRIPTOR):
            with pytest.raises(UnsupportedSchemaError, match="contains itself"):
                column(rows, by_schema, headers=headers)
            continue
        expected = [None if rows[row] is None else plain(each) for row, each in enumerate(messages)]
        by_class = ProtobufDeserializer(registry(), message_type)
        failed: list[RecordDeserializationError] = []
        for deserializer in (by_schema, by_class):
            decoded = column(rows, deserializer, headers=headers, on_error=failed.append)
            assert decoded == expected
        equal += 1
    assert equal > 10


def order_type(found: Any) -> Any:
    message = ProtobufDeserializer(registry(found)).deserialize("orders", (), framed(1, b"\0"))
    return type(message)


def orders(count: int) -> list[Any]:
    kind = order_type(file("x"))
    return [framed(1, b"\0" + kind(a=f"i{row}").SerializeToString()) for row in range(count)]


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (framed(1, b"\0\x0a\x09tea"), SchemaMismatchError),
        (framed(1, b"\0\x0a\x01\xff"), SchemaMismatchError),
        (framed(1, b"\0\x0a"), SchemaMismatchError),
        (framed(1, b""), FramingError),
        (framed(1, b"\x02\x06\x0a\x03tea"), FramingError),
        (framed(1, b"\xff" * 20), FramingError),
        (b"{}", FramingError),
    ],
)
@pytest.mark.cases
def test_one_bad_row_amid_many_is_found(bad: bytes, cause: type[Exception]) -> None:
    rows = orders(3 * FEW)
    rows[FEW + 7] = bad
    errors: list[RecordDeserializationError] = []

    def on_error(error: RecordDeserializationError) -> str:
        errors.append(error)
        return "null"

    deserializer = ProtobufDeserializer(registry(file("x")))
    decoded = column(rows, deserializer, on_error=on_error)
    assert [row for row, each in enumerate(decoded) if each is None] == [FEW + 7]
    assert decoded[FEW + 8] == {"a": f"i{FEW + 8}"}
    [error] = errors
    assert isinstance(error.__cause__, cause) and error.offset == 10 + FEW + 7


def test_bytes_of_one_row_are_never_those_of_another() -> None:
    """A length that is too large would take the next row, if rows were not framed."""
    rows = orders(3 * FEW)
    rows[100] = framed(1, b"\0\x0a\x07tea")
    rows[101] = framed(1, b"\0milk")
    decoded = column(rows, ProtobufDeserializer(registry(file("x"))), on_error="null")
    assert [row for row, each in enumerate(decoded) if each is None] == [100, 101]


def test_messages_of_one_schema_become_one_by_name() -> None:
    two = file("x")
    two.message_type.add(name="Price").field.add(name="b", number=1, label=1, type=5)
    rows = [framed(1, b"\0\x0a\x03tea"), framed(1, b"\x02\x02\x08\x07"), framed(1, b"\x02\0")]
    assert column(rows, ProtobufDeserializer(registry(two))) == [
        {"a": "tea", "b": None},
        {"a": None, "b": 7},
        {"a": "", "b": None},
    ]


def known_types() -> Any:
    """Return a file with a message of what random files do not have."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    names = ("timestamp", "duration", "wrappers")
    found = file("x", *(f"google/protobuf/{each}.proto" for each in names))
    message = found.message_type[0]

    def add(name: str, type_name: str, label: int = 1) -> Any:
        number = len(message.field) + 1
        kind = FieldDescriptorProto.TYPE_MESSAGE
        return message.field.add(
            name=name, number=number, label=label, type=kind, type_name=type_name
        )

    add("at", ".google.protobuf.Timestamp")
    add("took", ".google.protobuf.Duration")
    add("maybe", ".google.protobuf.Int64Value")
    add("many", ".google.protobuf.StringValue", 3)
    entry = message.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".google.protobuf.Duration")
    add("prices", ".shop.Order.PricesEntry", 3)
    color = found.enum_type.add(name="Color")
    for name, number in (("RED", 0), ("BLUE", 1), ("AZURE", 1)):
        color.value.add(name=name, number=number)
    color.options.allow_alias = True
    message.oneof_decl.add(name="_color")
    message.field.add(
        name="color", number=9, label=1, type=14, type_name=".shop.Color", proto3_optional=True
    ).oneof_index = 0
    message.field.add(name="colors", number=10, label=3, type=14, type_name=".shop.Color")
    return found


def test_known_types_maps_and_enums_have_columns() -> None:
    found = known_types()
    kind = order_type(found)
    full = kind(maybe={"value": 0}, many=[{"value": "x"}, {}], color=1, colors=[0, 1, 7])
    full.at.FromJsonString("2026-01-02T03:04:05.678901999Z")
    full.took.FromNanoseconds(-1_500_001_999)
    full.prices["tea"].FromSeconds(3)
    deserializer = ProtobufDeserializer(registry(found))
    rows = [framed(1, b"\0" + each.SerializeToString()) for each in (full, kind())]
    [first, second] = column(rows, deserializer)
    assert first == {
        "a": "",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "took": timedelta(seconds=-1, microseconds=-500_001),
        "maybe": 0,
        "many": ["x", ""],
        "prices": [("tea", timedelta(seconds=3))],
        "color": "BLUE",
        "colors": ["RED", "BLUE", "7"],
    }
    nothing = dict.fromkeys(["at", "took", "maybe", "color"])
    assert second == {"a": "", **nothing, "many": [], "prices": [], "colors": []}


def test_times_out_of_range_are_bad_rows() -> None:
    found = known_types()
    late = order_type(found)()
    late.at.seconds = 253_402_300_800
    last = order_type(found)()
    last.at.seconds = 253_402_300_799
    rows = [framed(1, b"\0" + each.SerializeToString()) for each in (last, late)]
    decoded = column(rows, ProtobufDeserializer(registry(found)), on_error="null")
    assert decoded[0]["at"] == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert decoded[1] is None


def test_own_class_decides_the_type_and_loads_no_schema() -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    kind = order_type(file("x"))
    deserializer = ProtobufDeserializer(registry(), kind)
    rows = [framed(7, b"\0\x0a\x03tea"), framed(8, b"\x02\x02\x0a\x04milk"), None]
    assert column(rows, deserializer) == [{"a": "tea"}, {"a": "milk"}, None]
    empty = columns(table([None]), value=deserializer)
    assert str(empty.schema.field("value").type) == "struct<a: large_string>"
    text_value = b"\0" + StringValue(value="tea").SerializeToString()
    assert column([framed(7, text_value)], ProtobufDeserializer(registry(), StringValue)) == ["tea"]
