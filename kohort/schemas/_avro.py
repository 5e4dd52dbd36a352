"""The record deserializer for Avro, over fastavro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from io import BytesIO
from typing import Any

from kohort.schemas._deserializer import SchemaDeserializer
from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._framing import Framed
from kohort.schemas._registry import Schema, SchemaRegistry


class AvroDeserializer(SchemaDeserializer):
    """A deserializer that returns what fastavro returns: dicts for records.

    The schema in the registry decides. With ``reader_schema``, the values have that schema by
    Avro's rules of evolution.
    """

    kind = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: str | Mapping[str, Any] | None = None,
        *,
        is_key: bool = False,
    ) -> None:
        super().__init__(registry, is_key=is_key)
        self._reader = None
        if reader_schema is not None:
            given = reader_schema
            self._reader = parsed(Schema(given if isinstance(given, str) else json.dumps(given)))

    def decoder(self, schema: Schema) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema."""
        from fastavro import schemaless_reader

        writer, reader = parsed(schema), self._reader
        if writer == "bytes" or (isinstance(writer, dict) and writer.get("type") == "bytes"):
            # Confluent's serializers write plain bytes without their length.
            return lambda framed: framed.data
        return lambda framed: schemaless_reader(BytesIO(framed.data), writer, reader)


def parsed(schema: Schema) -> Any:
    """Return a schema as fastavro reads it, with the types of its references in it."""
    from fastavro.repository import AbstractSchemaRepository
    from fastavro.schema import load_schema

    named = _named(schema)

    class Loaded(AbstractSchemaRepository):  # type: ignore[misc, unused-ignore]
        def load(self, name: str) -> Any:
            return deepcopy(named.get(name))

    try:
        return load_schema("$root", repo=Loaded())
    except Exception as error:
        raise UnsupportedSchemaError(
            f"fastavro does not read the schema: {type(error).__name__}: {error}"
        ) from error


def _named(schema: Schema) -> dict[str, Any]:
    """Return the definition as ``$root``, and those of all references by their names."""
    named: dict[str, Any] = {}
    waiting = [("$root", schema)]
    while waiting:
        name, each = waiting.pop()
        definition = definition_of(each)
        named[name] = definition
        if isinstance(definition, dict) and "name" in definition:
            own, space = str(definition["name"]), definition.get("namespace")
            named.setdefault(f"{space}.{own}" if space and "." not in own else own, definition)
        waiting += each.references.items()
    return named


def definition_of(schema: Schema) -> Any:
    """Return the JSON of an Avro schema. A bare name, such as ``string``, is one, too."""
    try:
        return json.loads(schema.text)
    except ValueError:
        if schema.text.strip().replace("_", "").isalnum():
            return schema.text.strip()
        raise UnsupportedSchemaError("the registry has a schema that is not JSON") from None
