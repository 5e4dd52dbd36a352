"""Values as columns: equal to records, whatever the schemas, framings and bad rows."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kohort import KafkaConsumer, RecordDeserializationError, RecordTable
from kohort.errors import InvalidOptionError
from kohort.schemas import (
    AvroDeserializer,
    FramingError,
    RegistryUnavailableError,
    Schema,
    SchemaMismatchError,
    SchemaRegistry,
    UnknownSchemaError,
    UnsupportedSchemaError,
    columns,
    columns_async,
)
from kohort.schemas._avro_block import _at_once
from kohort.schemas._avro_types import AvroTypes
from kohort.schemas._blocks import FEW
from kohort.testing import Cluster
from tests.schemas.framed import avro, framed, table
from tests.schemas.random_avro import RandomAvro

pa = pytest.importorskip("pyarrow")
pytest.importorskip("polars")
pytest.importorskip("fastavro")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "int"}],
}
GUID = UUID(int=5)
MANY = 3 * FEW


def registry(schemas: dict[int | UUID, Any]) -> SchemaRegistry:
    found = SchemaRegistry("http://127.0.0.1:9", timeout_ms=1)
    for schema_id, schema in schemas.items():
        found._schemas[schema_id] = Schema(json.dumps(schema))
    return found


def values_of(found: Any) -> list[Any]:
    return list(found.column("value").to_pylist())


def plain(value: Any) -> Any:
    """Return a value of fastavro as pyarrow returns it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, UUID) else value


def as_dicts(value: Any, like: Any) -> Any:
    """Return a value of pyarrow with dicts for maps, as ``like`` has them."""
    if isinstance(like, dict) and value is not None:
        pairs = value.items() if isinstance(value, dict) else value
        return {key: as_dicts(each, like[key]) for key, each in pairs}
    if isinstance(like, list):
        return [as_dicts(each, other) for each, other in zip(value, like, strict=True)]
    return value


def read_at_once(bodies: Any, of: Any, read: Any = _at_once) -> Any:
    found = read(bodies, of)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_columns_equal_records_for_random_schemas(seed: int, monkeypatch: Any) -> None:
    """Twenty schemas each, with blocks of few records so that polars reads them, without fail."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 4)
    monkeypatch.setattr("kohort.schemas._avro_block._at_once", read_at_once)
    for number in range(20):
        source = RandomAvro(20 * seed + number)
        schema = source.record() if number % 5 else source.schema(1)
        data = [avro(schema, source.value(schema)) for _ in range(12)]
        rows: list[bytes | None] = [framed(1, body) for body in data]
        rows[3], rows[5] = None, framed(GUID, data[5])
        rows[7], headers = data[7], {7: [("__value_schema_id", b"\x01" + GUID.bytes)]}
        deserializer = AvroDeserializer(registry({1: schema, GUID: schema}))
        expected = [
            plain(deserializer.deserialize("orders", headers.get(row, ()), each))
            for row, each in enumerate(rows)
        ]
        decoded = values_of(columns(table(rows, headers), value=deserializer))
        assert [as_dicts(*both) for both in zip(decoded, expected, strict=True)] == expected


def test_columns_take_the_result_of_a_poll() -> None:
    with Cluster(topics={"orders": 2}, schema_registry=True) as cluster:
        found = SchemaRegistry(cluster.schema_registry_url)
        number = found.register("orders-value", json.dumps(ORDER))
        for partition, items in enumerate(["ab", "cd"]):
            data = [framed(number, avro(ORDER, {"item": each, "price": 1})) for each in items]
            cluster.produce("orders", data, partition=partition)
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "auto_offset_reset": "earliest",
        }
        deserializer = AvroDeserializer(found)
        with KafkaConsumer("orders", **options) as consumer:
            batches: list[Any] = []
            while sum(map(len, batches)) < 4:
                batches += consumer.poll_batches(timeout_ms=60_000)
        decoded = columns(RecordTable(batches), value=deserializer)
        assert sorted(each["item"] for each in values_of(decoded)) == ["a", "b", "c", "d"]
        with KafkaConsumer("orders", **options) as consumer:
            batch = consumer.poll_arrow(timeout_ms=60_000)
            assert values_of(columns(batch, value=deserializer))[0]["price"] == 1


@pytest.mark.anyio
async def test_columns_async_returns_the_same() -> None:
    deserializer = AvroDeserializer(registry({1: ORDER}))
    rows = table([framed(1, avro(ORDER, {"item": "tea", "price": 3}))])
    assert (await columns_async(rows, value=deserializer)).equals(columns(rows, value=deserializer))


def orders(count: int, schema_id: int = 1) -> list[bytes | None]:
    return [
        framed(schema_id, avro(ORDER, {"item": f"i{row}", "price": row})) for row in range(count)
    ]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda data: data[:-1], SchemaMismatchError),
        (lambda data: data[:7], SchemaMismatchError),
        (lambda data: b"{}", FramingError),
        (lambda data: b"", FramingError),
        (lambda data: framed(9, data[5:]), UnknownSchemaError),
        (lambda data: framed(1, b"\x05" + data[6:]), SchemaMismatchError),
    ],
)
@pytest.mark.cases
def test_one_bad_row_amid_many_is_found(change: Any, cause: type[Exception]) -> None:
    rows = orders(MANY)
    rows[FEW + 7] = change(rows[FEW + 7])
    found = registry({1: ORDER})
    found._unknown[9] = float("inf"), UnknownSchemaError("no schema 9")
    errors: list[RecordDeserializationError] = []

    def on_error(error: RecordDeserializationError) -> Any:
        errors.append(error)
        return "null"

    deserializer = AvroDeserializer(found)
    decoded = values_of(columns(table(rows), value=deserializer, on_error=on_error))
    assert [row for row, each in enumerate(decoded) if each is None] == [FEW + 7]
    assert decoded[FEW + 8] == {"item": f"i{FEW + 8}", "price": FEW + 8}
    [error] = errors
    assert isinstance(error.__cause__, cause)
    assert (error.topic_partition, error.offset) == (("orders", 2), 10 + FEW + 7)
    assert error.raw == error.value == rows[FEW + 7]
    skipped = columns(table(rows), value=deserializer, on_error="skip")
    assert skipped.num_rows == MANY - 1
    assert skipped.column("offset").to_pylist() == [
        10 + row for row in range(MANY) if row != FEW + 7
    ]
    with pytest.raises(RecordDeserializationError, match=f"orders-2 offset {10 + FEW + 7} does"):
        columns(table(rows), value=deserializer)


def test_rows_with_bytes_too_many_do_not_shift_others() -> None:
    """polars does not notice them: one row has two bytes more and another one two less."""
    rows = orders(MANY)
    rows[100], rows[200] = (rows[100] or b"") + b"\x02\x02", (rows[200] or b"")[:-2]
    deserializer = AvroDeserializer(registry({1: ORDER}))
    decoded = values_of(columns(table(rows), value=deserializer, on_error="null"))
    assert [row for row, each in enumerate(decoded) if each is None] == [200]
    assert all(each["price"] == row for row, each in enumerate(decoded) if row != 200)


MIXED = {
    "type": "record",
    "name": "Mixed",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "many", "type": {"type": "array", "items": ["null", "bytes"]}},
        {"name": "is_it", "type": "boolean"},
    ],
}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.cases(1)
def test_changed_bytes_change_no_other_row(seed: int, monkeypatch: Any) -> None:
    """Every row is as fastavro reads it, except for changed ones that polars may read, too."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 2)
    random = Random(seed)
    rows: list[bytes] = []
    for number in range(60):
        value = {
            "id": number * random.choice([1, 1 << 40]),
            "text": random.choice([None, "tea", "zoë" * 20]),
            "kind": random.choice("AB"),
            "many": [random.choice([None, b"x" * 70]) for _ in range(random.randrange(3))],
            "is_it": random.random() < 0.5,
        }
        rows.append(framed(1, avro(MIXED, value)))
    changed = random.sample(range(60), 3)
    for row in changed:
        broken = bytearray(rows[row])
        place = random.randrange(5, len(broken))
        broken[place : place + random.randrange(2)] = random.randbytes(random.randrange(3))
        rows[row] = bytes(broken)
    deserializer = AvroDeserializer(registry({1: MIXED}))
    decoded = values_of(columns(table(rows), value=deserializer, on_error="null"))
    for row, data in enumerate(rows):
        if row not in changed:
            assert decoded[row] == deserializer.deserialize("orders", (), data)


def test_array_of_empty_records_is_read_record_by_record() -> None:
    """A wrong count would be a loop without end, because no bytes are missing."""
    nothing = {"type": "record", "name": "None", "fields": []}
    schema = {"type": "array", "items": nothing}
    rows = [framed(1, avro(schema, [{}, {}]))] * (FEW + 1)
    deserializer = AvroDeserializer(registry({1: schema}))
    assert values_of(columns(table(rows), value=deserializer))[-1] == [{}, {}]
    assert AvroTypes().of(schema).plain is None


def test_values_that_are_all_bad_or_null_are_null() -> None:
    deserializer = AvroDeserializer(registry({}))
    decoded = columns(table([b"raw", None]), value=deserializer, on_error="null")
    assert values_of(decoded) == [None, None]
    assert columns(table([]), value=deserializer).num_rows == 0


def test_schemas_of_one_table_become_one_by_name() -> None:
    newer = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "currency", "type": "string"},
            {"name": "price", "type": "long"},
            {
                "name": "sizes",
                "type": {"type": "array", "items": {"type": "record", "name": "S", "fields": []}},
            },
        ],
    }
    found = registry({1: ORDER, 2: newer, 3: "bytes"})
    new = framed(2, avro(newer, {"currency": "EUR", "price": 1 << 40, "sizes": [{}]}))
    rows = [*orders(2), new, None, *orders(1)]
    decoded = columns(table(rows), value=AvroDeserializer(found))
    kind = decoded.schema.field("value").type
    assert [kind.field(index).name for index in range(4)] == ["currency", "price", "sizes", "item"]
    assert kind.field(1).type == pa.int64()
    old = {"currency": None, "sizes": None}
    assert values_of(decoded) == [
        {**old, "item": "i0", "price": 0},
        {**old, "item": "i1", "price": 1},
        {"currency": "EUR", "price": 1 << 40, "sizes": [{}], "item": None},
        None,
        {**old, "item": "i0", "price": 0},
    ]
    with pytest.raises(SchemaMismatchError, match="Pass a reader schema"):
        columns(table([*rows, framed(3, b"x")]), value=AvroDeserializer(found))


def test_reader_schema_decides_the_type() -> None:
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "price", "type": "double"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
    deserializer = AvroDeserializer(registry({1: ORDER}), reader)
    decoded = columns(table([*orders(2), None]), value=deserializer)
    assert values_of(decoded) == [
        {"price": 0.0, "currency": "EUR"},
        {"price": 1.0, "currency": "EUR"},
        None,
    ]
    assert columns(table([None]), value=deserializer).schema == decoded.schema


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_reader_columns_equal_records(seed: int, monkeypatch: Any) -> None:
    """Twenty schemas each, of which fields are dropped, moved, widened, made nullable and added."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 4)
    for number in range(20):
        source = RandomAvro(20 * seed + number)
        schema = source.record()
        random, fields = source.random, list(schema["fields"])
        for place, field in enumerate(fields):
            kind = field["type"]
            if isinstance(kind, str) and kind in ("int", "long", "float"):
                wider = {"int": "long", "long": "double", "float": "double"}[kind]
                fields[place] = field | {"type": random.choice([wider, ["null", wider], kind])}
            elif not isinstance(kind, list) and random.random() < 0.3:
                fields[place] = field | {"type": [kind, "null"]}
        fields = fields[: random.randint(0, len(fields))]
        added = [
            {"name": "new_a", "type": ["null", "string"], "default": None},
            {"name": "new_b", "type": "long", "default": 7},
            {"name": "new_c", "type": "bytes", "default": "\u00ff"},
            {"name": "new_d", "type": ["double", "null"], "default": 1.5},
        ]
        reader = schema | {"fields": fields + random.sample(added, random.randint(0, 3))}
        rows = [framed(1, avro(schema, source.value(schema))) for _ in range(9)]
        deserializer = AvroDeserializer(registry({1: schema}), reader)
        expected = [plain(deserializer.deserialize("orders", (), each)) for each in rows]
        for each in expected:
            if "new_c" in each:  # fastavro leaves it as it is in JSON
                each["new_c"] = b"\xff"
        decoded = values_of(columns(table(rows), value=deserializer))
        assert [as_dicts(*both) for both in zip(decoded, expected, strict=True)] == expected


def test_reader_schema_is_as_fast_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("read one by one")

    monkeypatch.setattr("kohort.schemas._avro_block.values_one_by_one", fail)
    added = {"name": "currency", "type": "string", "default": "EUR"}
    reader = ORDER | {"fields": [added, {"name": "price", "type": ["null", "long"]}]}
    deserializer = AvroDeserializer(registry({1: ORDER}), reader)
    decoded = columns(table(orders(FEW + 1)), value=deserializer)
    assert values_of(decoded)[-1] == {"currency": "EUR", "price": FEW}


def test_keys_have_columns_too() -> None:
    rows = table([b"\0\0\0\0\1\x06tea", None])
    rows = rows.set_column(0, "key", rows.column("value"))
    found = registry({1: "string", 2: "bytes"})
    decoded = columns(rows, key=AvroDeserializer(found, is_key=True))
    assert decoded.column("key").to_pylist() == ["tea", None]
    assert decoded.column("value").to_pylist() == [b"\0\0\0\0\1\x06tea", None]
    whole = columns(table([b"\0\0\0\0\2\x06tea"]), value=AvroDeserializer(found))
    assert values_of(whole) == [b"\x06tea"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (["int", "string"], "union of several types"),
        (
            {
                "type": "record",
                "name": "L",
                "fields": [{"name": "next", "type": ["null", "L"]}],
            },
            "L contains itself",
        ),
    ],
)
def test_schemas_without_a_column_say_so(schema: Any, text: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=re.escape(text)):
        columns(table([framed(1, b"\0\2")]), value=AvroDeserializer(registry({1: schema})))


def test_registry_that_is_away_is_no_bad_row() -> None:
    with pytest.raises(RegistryUnavailableError):
        columns(table(orders(1, 7)), value=AvroDeserializer(registry({})), on_error="skip")


def test_wrong_actions_are_refused() -> None:
    deserializer: Any = AvroDeserializer(registry({}))
    wrong: Any = "pause"
    with pytest.raises(InvalidOptionError, match="on_error='pause'"):
        columns(table([]), value=deserializer, on_error=wrong)
    with pytest.raises(InvalidOptionError, match="on_error returned None"):
        columns(table([b"raw"]), value=deserializer, on_error=lambda error: None)
