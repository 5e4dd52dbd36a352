"""Values of JSON Schema as columns: equal to records, whatever the schemas and bad rows."""

from __future__ import annotations

import json
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kohort import RecordDeserializationError
from kohort.schemas import JsonDeserializer, Schema, SchemaMismatchError, SchemaRegistry, columns
from kohort.schemas._blocks import FEW
from kohort.schemas._json_block import read_at_once
from tests.schemas.framed import framed, table
from tests.schemas.random_json import SCALARS, TYPED, RandomJson

pa = pytest.importorskip("pyarrow")
pytest.importorskip("polars")
pytest.importorskip("jsonschema")

GUID = UUID(int=5)
ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "maxLength": 9},
        "price": {"type": "integer", "minimum": 0},
        "note": {"type": ["string", "null"]},
    },
    "required": ["item", "price"],
}


def registry(*schemas: Any) -> SchemaRegistry:
    found = SchemaRegistry("http://127.0.0.1:9", timeout_ms=1)
    for schema_id, schema in enumerate(schemas, 1):
        found._schemas[schema_id] = Schema(json.dumps(schema), "JSON")
    return found


def encoded(value: Any, schema_id: int | UUID = 1) -> bytes:
    return framed(schema_id, value if isinstance(value, bytes) else json.dumps(value).encode())


def column(rows: Any, deserializer: JsonDeserializer, **options: Any) -> Any:
    decoded = columns(table(rows, options.pop("headers", None)), value=deserializer, **options)
    return decoded.column("value").to_pylist()


def is_valid(deserializer: JsonDeserializer, data: bytes) -> bool:
    try:
        deserializer.deserialize("orders", (), data)
    except SchemaMismatchError:
        return False
    return True


def is_same(found: Any, value: Any) -> bool:
    """True if a value of a column is the value of a record, or its JSON text."""
    if isinstance(found, dict) and isinstance(value, dict):
        return all(is_same(each, value.get(name)) for name, each in found.items())
    if isinstance(found, list) and isinstance(value, list) and len(found) == len(value):
        return all(is_same(*both) for both in zip(found, value, strict=True))
    if isinstance(found, str) and found != value:
        return bool(json.loads(found) == value)
    return bool(found == value)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.cases(1)
def test_columns_equal_records_for_random_schemas(seed: int, monkeypatch: Any) -> None:
    """Twenty schemas each, with values that are valid and such that are not."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 2)
    at_once = 0

    def counting(*given: Any) -> Any:
        nonlocal at_once
        found = read_at_once(*given)
        at_once += 0 if found is None else len(found)
        return found

    monkeypatch.setattr("kohort.schemas._json_block.read_at_once", counting)
    for number in range(20):
        scalars = TYPED if number % 4 else SCALARS
        source = RandomJson(20 * seed + number, scalars=scalars, errors=0.02)
        schema = source.schema()
        found = registry(schema)
        found._schemas[GUID] = found._schemas[1]
        deserializer = JsonDeserializer(found)
        made = [encoded(source.value(schema)) for _ in range(20)]
        valid = [each for each in made if is_valid(deserializer, each)]
        rows: list[bytes | None] = [
            source.random.choice(valid if valid and source.random.random() < 0.95 else made)
            for _ in range(40)
        ]
        rows[3], rows[5] = None, framed(GUID, (rows[5] or b"")[5:])
        rows[7], headers = (rows[7] or b"")[5:], {7: [("__value_schema_id", b"\x01" + GUID.bytes)]}
        failed: list[int] = []

        def on_error(error: RecordDeserializationError, failed: list[int] = failed) -> str:
            failed.append(error.offset - 10)
            return "null"

        decoded = column(rows, deserializer, headers=headers, on_error=on_error)
        for row, data in enumerate(rows):
            try:
                expected = deserializer.deserialize("orders", headers.get(row, ()), data)
            except SchemaMismatchError:
                assert row in failed and decoded[row] is None
            else:
                assert row not in failed, (schema, data)
                assert is_same(decoded[row], expected), (schema, data)
    assert at_once > 50


def orders(count: int) -> list[Any]:
    return [{"item": f"i{row}", "price": row} for row in range(count)]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"item": "tea", "price": "3"}',
        b'{"item": "tea", "price": -1}',
        b'{"item": "tea and milk", "price": 1}',
        b'{"item": "tea"}',
        b'{"item": null, "price": 1}',
        b'{"item": "tea", "price": 1',
        b'{"item": "tea", "price": 1}}',
        b'{"item": "tea", "price": 1}{"item": "tea", "price": 1}',
        b'{"item": "\xff", "price": 1}',
        b'{"item": "tea", "price": 1e}',
        b'{"item": "tea", "price": 1, "other": Inf}',
        b"[]",
        b"",
        b" ",
        b"null",
    ],
)
@pytest.mark.cases
def test_one_bad_row_amid_many_is_found(bad: bytes) -> None:
    rows = [encoded(each) for each in orders(3 * FEW)]
    rows[FEW + 7] = encoded(bad)
    deserializer = JsonDeserializer(registry(ORDER))
    decoded = column(rows, deserializer, on_error="null")
    assert [row for row, each in enumerate(decoded) if each is None] == [FEW + 7]
    assert decoded[FEW + 8] == {"item": f"i{FEW + 8}", "price": FEW + 8, "note": None}
    with pytest.raises(RecordDeserializationError, match=f"orders-2 offset {10 + FEW + 7} does"):
        column(rows, deserializer)


def test_valid_rows_of_any_form_are_read(monkeypatch: Any) -> None:
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 1)
    forms = [
        b'{"item": "tea", "price": 1}',
        b'\n{\n  "item": "tea",\r\n  "price": 1\n}\n',
        b'{"price": 1.0, "item": "tea"}',
        b'{"price": 1, "item": "t\\u0065a", "note": null}',
        b'{"price": 7, "item": "milk", "price": 1, "item": "tea"}',
        b'{"price": 1, "item": "tea", "other": {"item": null, "Info": [-Infinity, NaN]}}',
        '{"price": 1, "item": "tea"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"price": 1, "item": "tea"}',
    ]
    deserializer = JsonDeserializer(registry(ORDER))
    decoded = column([encoded(each) for each in forms], deserializer)
    assert decoded == [{"item": "tea", "price": 1, "note": None}] * len(forms)


MUST = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "integer"}},
    "required": ["a"],
}


def test_null_is_not_a_missing_property(monkeypatch: Any) -> None:
    """The rows have a "null" in each place where it is right, wrong, or only a text."""
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 1)
    texts = [
        '{"a": null}',
        '{"a": "null"}',
        '{"a": "null", "b": null}',
        '{"b": 1}',
        '{"b": 1, "c": null}',
        '{"c": {"a": null}}',
        '{"c": "\\"a\\": null"}',
        '{"\\u0061": null}',
        '{"a": null, "\\u0062": null}',
        '{"c": "a", "d": null}',
        '{"a" : null, "b": 2}',
    ]
    deserializer = JsonDeserializer(registry(MUST))
    rows = [encoded(each.encode()) for each in texts]
    expected: list[Any] = []
    for data in rows:
        try:
            value = deserializer.deserialize("orders", (), data)
            expected.append({"a": value["a"], "b": value.get("b")})
        except SchemaMismatchError:
            expected.append(None)
    assert column(rows, deserializer, on_error="null") == expected
    assert [each is None for each in expected].count(True) == 7


def test_rows_of_null_properties_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("read one by one")

    monkeypatch.setattr("kohort.schemas._json_block.values_one_by_one", fail)
    deserializer = JsonDeserializer(registry(MUST))
    rows = [encoded({"a": None if row % 2 else "tea"}) for row in range(FEW + 1)]
    assert column(rows, deserializer)[1] == {"a": None, "b": None}


def test_numbers_beyond_doubles_are_bad_rows_or_rounded() -> None:
    """A double has 53 bits, and a column of integers 64."""
    schema = {"properties": {"a": {"type": "number"}, "b": {"type": "integer"}}}
    deserializer = JsonDeserializer(registry(schema))
    rows = [encoded({"a": 2**53 + 1, "b": 2**63 - 1}), encoded({"b": 2**63})]
    first, second = column(rows, deserializer, on_error="null")
    assert (first, second) == ({"a": float(2**53), "b": 2**63 - 1}, None)


def test_values_without_one_type_are_json_text() -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "either": {"type": ["string", "integer"]},
            "bag": {"type": "object"},
            "next": {"$ref": "#"},
            "prices": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    value = {
        "any": [1],
        "either": "tea",
        "bag": {"a": "ö"},
        "next": {"any": 1},
        "prices": {"tea": 3},
    }
    [found] = column([encoded(value)], JsonDeserializer(registry(schema)))
    assert found == {
        "any": "[1]",
        "either": '"tea"',
        "bag": '{"a": "ö"}',
        "next": '{"any": 1}',
        "prices": [("tea", 3)],
    }


def test_schemas_of_one_table_become_one_by_name() -> None:
    newer = {"type": "object", "properties": {"price": {"type": "number"}, "unit": {"const": "KG"}}}
    rows = [encoded(orders(1)[0]), encoded({"price": 0.5, "unit": "KG"}, 2), None]
    decoded = column(rows, JsonDeserializer(registry(ORDER, newer)))
    assert decoded == [
        {"item": "i0", "price": 0.0, "note": None, "unit": None},
        {"item": None, "price": 0.5, "note": None, "unit": "KG"},
        None,
    ]


def test_own_schema_decides_the_type_and_loads_none() -> None:
    reader = {"properties": {"price": {"type": "number"}}}
    deserializer = JsonDeserializer(registry(), reader)
    rows = [encoded({"price": 3, "other": 1}, 7), encoded({"price": "3"}, 8)]
    assert column(rows, deserializer, on_error="null") == [{"price": 3.0}, None]
    assert str(columns(table([]), value=deserializer).schema.field("value").type) == (
        "struct<price: double>"
    )


def test_values_are_not_checked_without_validation(monkeypatch: Any) -> None:
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 1)
    deserializer = JsonDeserializer(registry(ORDER), validate=False)
    rows = [encoded(each) for each in ({"price": -1}, {"item": "tea"}, {"item": None}, {"item": 1})]
    assert column(rows, deserializer, on_error="null") == [
        {"item": None, "price": -1, "note": None},
        {"item": "tea", "price": None, "note": None},
        {"item": None, "price": None, "note": None},
        None,
    ]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.cases(1)
def test_changed_bytes_change_no_other_row(seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("kohort.schemas._blocks.FEW", 2)
    random = Random(seed)
    rows = [encoded(each) for each in orders(60)]
    for row in random.sample(range(60), 5):
        broken = bytearray(rows[row])
        place = random.randrange(5, len(broken))
        broken[place : place + random.randrange(2)] = random.choice(
            [b"}", b"{", b'"', b"\n", b"\\", b",", b"null", b"\xff", b"]", b"}{", b"", b"Inf", b"0"]
        )
        rows[row] = bytes(broken)
    deserializer = JsonDeserializer(registry(ORDER))
    decoded = column(rows, deserializer, on_error="null")
    for row, data in enumerate(rows):
        try:
            expected = deserializer.deserialize("orders", (), data)
        except SchemaMismatchError:
            assert decoded[row] is None
        else:
            assert is_same(decoded[row], expected)
