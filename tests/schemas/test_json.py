"""JSON Schema record by record. test_confluent.py compares it with confluent-kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kohort.schemas import (
    JsonDeserializer,
    Schema,
    SchemaMismatchError,
    SchemaNotPreparedError,
    SchemaRegistry,
    UnsupportedSchemaError,
)
from tests.schemas.framed import framed

pytest.importorskip("jsonschema")

ORDER = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}


def registry(*schemas: Schema) -> SchemaRegistry:
    found = SchemaRegistry("http://127.0.0.1:9")
    found._schemas.update(enumerate(schemas, 1))
    return found


def read(deserializer: JsonDeserializer, text: str, schema_id: int = 1) -> Any:
    return deserializer.deserialize("orders", (), framed(schema_id, text.encode()))


def test_value_is_checked_by_its_schema() -> None:
    deserializer = JsonDeserializer(registry(Schema(json.dumps(ORDER), "JSON")))
    assert read(deserializer, '{"price": 3}') == {"price": 3}
    for wrong in ('{"price": "3"}', "{}", "[1]", "{", "\xff"):
        with pytest.raises(SchemaMismatchError, match="do not match the schema 1"):
            read(deserializer, wrong)
    with pytest.raises(SchemaNotPreparedError):
        read(deserializer, "{}", 7)
    assert deserializer.deserialize("orders", (), None) is None


def test_own_schema_or_none_needs_no_registry() -> None:
    assert read(JsonDeserializer(registry(), validate=False), "[]", 7) == []
    deserializer = JsonDeserializer(registry(), ORDER)
    assert read(deserializer, '{"price": 3}', 7) == {"price": 3}
    with pytest.raises(SchemaMismatchError):
        read(deserializer, "{}", 8)
    assert len(deserializer._decoders) == 1  # not one for each id that records may have


def test_references_are_found_and_others_are_not_loaded() -> None:
    unit = Schema('{"enum": ["KG", "L"]}', "JSON")
    item = Schema('{"type": "array", "items": {"$ref": "unit.json"}}', "JSON", {"unit.json": unit})
    order = Schema('{"properties": {"a": {"$ref": "item.json"}}}', "JSON", {"item.json": item})
    web = Schema('{"$ref": "http://127.0.0.1:9/away.json"}', "JSON")
    deserializer = JsonDeserializer(registry(order, web))
    assert read(deserializer, '{"a": ["KG"]}') == {"a": ["KG"]}
    with pytest.raises(SchemaMismatchError, match="'T' is not one of"):
        read(deserializer, '{"a": ["T"]}')
    with pytest.raises(SchemaMismatchError, match="Unresolvable"):
        read(deserializer, "{}", 2)


def test_schemas_that_are_none_say_so() -> None:
    deserializer = JsonDeserializer(registry(Schema('{"type": 3}', "JSON"), Schema("{", "JSON")))
    for schema_id in (1, 2):
        with pytest.raises(UnsupportedSchemaError):
            read(deserializer, "{}", schema_id)
