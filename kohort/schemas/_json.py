"""The record deserializer for JSON Schema, over jsonschema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kohort.schemas._deserializer import SchemaDeserializer
from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._framing import Framed
from kohort.schemas._needs import check_installed
from kohort.schemas._registry import Schema, SchemaRegistry


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
        self._check: Callable[[Any], object] | None = None
        if validate and reader_schema is not None:
            given = reader_schema
            text = given if isinstance(given, str) else json.dumps(given)
            self._check = _validator(Schema(text, "JSON"))

    def decoder(self, schema: Schema | None) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema, or of any schema for None."""
        check = self._check if schema is None else _validator(schema)

        def decode(framed: Framed) -> Any:
            value = json.loads(framed.data)
            if check is not None:
                check(value)
            return value

        return decode


def _validator(schema: Schema) -> Callable[[Any], object]:
    """Return a function that raises ValidationError for a value that is not valid."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    resources = []
    waiting = list(schema.references.items())
    while waiting:
        name, each = waiting.pop()
        contents = _definition(each)
        resources.append((name, Resource.from_contents(contents, default_specification=DRAFT7)))
        waiting += each.references.items()
    definition = _definition(schema)
    # jsonschema gets the references only, so it does no I/O for others.
    registry: Any = Registry().with_resources(resources)
    validator = validator_for(definition)
    try:
        validator.check_schema(definition)
    except SchemaError as error:
        raise UnsupportedSchemaError(
            f"the schema is no JSON Schema: {error.message}. Pass validate=False to read without it"
        ) from error
    check: Callable[[Any], object] = validator(definition, registry=registry).validate
    return check


def _definition(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except ValueError:
        raise UnsupportedSchemaError("the registry has a schema that is not JSON") from None
