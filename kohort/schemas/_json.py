"""The deserializer for JSON Schema, over jsonschema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kohort.schemas._deserializer import Failure, SchemaDeserializer, mismatch
from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._framing import Framed, SchemaId
from kohort.schemas._json_block import decode_rows
from kohort.schemas._json_types import JsonType, JsonTypes
from kohort.schemas._needs import LateModule, check_installed
from kohort.schemas._registry import Schema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")


class JsonDeserializer(SchemaDeserializer):
    """A deserializer that returns the value of JSON text, checked against its schema.

    The schema in the registry decides if a value is valid, or ``reader_schema`` if there is one.
    With ``validate=False`` nothing is checked, and no schema is loaded.
    """

    kind = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: str | Mapping[str, Any] | None = None,
        *,
        validate: bool = True,
        is_key: bool = False,
    ) -> None:
        check_installed("JsonDeserializer", "jsonschema")
        super().__init__(registry, is_key=is_key)
        self.needs_schema: bool = validate and reader_schema is None
        self._validates = validate
        self._reader: _Rules | None = None
        if reader_schema is not None:
            given = reader_schema
            self._reader = _Rules(given if isinstance(given, str) else json.dumps(given))
        self._rules: dict[SchemaId, _Rules] = {}

    def decoder(self, schema: Schema | None) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema, or of any schema for None."""
        rules = self._reader or (None if schema is None else _Rules(schema))
        decode = self._decode_body(rules)
        return lambda framed: decode(framed.data)

    def _decode_body(self, rules: _Rules | None) -> Callable[[bytes], Any]:
        if rules is None or not self._validates:
            return json.loads
        check = rules.validator.validate

        def decode(body: bytes) -> Any:
            value = json.loads(body)
            check(value)
            return value

        return decode

    def column(
        self, schema_id: SchemaId, message: Any, bodies: pa.Array
    ) -> tuple[pa.Array, list[Failure]]:
        """Return data of a schema as an array, null for bad rows, and the bad rows with errors."""
        rules = self._reader or self._rules.get(schema_id)
        if rules is None:
            rules = self._rules[schema_id] = _Rules(self._checked_schema(schema_id))
        is_valid = rules.is_valid if self._validates else None
        values, failures = decode_rows(bodies, rules.type, self._decode_body(rules), is_valid)
        return values, [(row, mismatch(schema_id, error)) for row, error in failures]

    def column_type(self) -> pa.DataType | None:
        """Return the type of the reader's schema, or None without one."""
        return None if self._reader is None else self._reader.type.arrow


class _Rules:
    """A schema with its validator, and its type as a column."""

    def __init__(self, given: Schema | str) -> None:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        schema = Schema(given, "JSON") if isinstance(given, str) else given
        resources = []
        waiting = list(schema.references.items())
        while waiting:
            name, each = waiting.pop()
            contents = _definition(each)
            resources.append((name, Resource.from_contents(contents, default_specification=DRAFT7)))
            waiting += each.references.items()
        self._definition = definition = _definition(schema)
        # jsonschema gets the references only, so it does no I/O for others.
        self._registry: Any = Registry().with_resources(resources)
        kind = validator_for(definition)
        try:
            kind.check_schema(definition)
        except SchemaError as error:
            raise UnsupportedSchemaError(
                f"the schema is no JSON Schema: {error.message}. Pass validate=False to read "
                "without it"
            ) from error
        self.validator: Any = kind(definition, registry=self._registry)

    def is_valid(self, keywords: dict[str, Any], value: Any) -> bool:
        """True if some keywords allow a value."""
        return bool(self.validator.evolve(schema=keywords).is_valid(value))

    @cached_property
    def type(self) -> JsonType:
        """The type of the values."""
        from referencing.jsonschema import specification_with

        dialect = self.validator.META_SCHEMA.get("$schema", "")
        resource = specification_with(dialect).create_resource(self._definition)
        resolver = self._registry.resolver_with_root(resource)
        return JsonTypes(self.validator).of(self._definition, resolver)


def _definition(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except ValueError:
        raise UnsupportedSchemaError("the registry has a schema that is not JSON") from None
