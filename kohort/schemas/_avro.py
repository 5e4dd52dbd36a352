"""The deserializer for Avro, over fastavro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kohort.schemas._avro_block import DecodeOne, avro_block
from kohort.schemas._avro_types import NO_TYPE, AvroTypes
from kohort.schemas._blocks import Block, decode_block
from kohort.schemas._deserializer import Failure, SchemaDeserializer, mismatch
from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._framing import Framed, SchemaId
from kohort.schemas._needs import LateModule, check_installed
from kohort.schemas._registry import Schema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")


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
        check_installed("AvroDeserializer", "fastavro")
        super().__init__(registry, is_key=is_key)
        self._blocks: dict[SchemaId, Block | None] = {}
        self._reader = None
        if reader_schema is not None:
            given = reader_schema
            self._reader = parsed(Schema(given if isinstance(given, str) else json.dumps(given)))

    def decoder(self, schema: Schema | None) -> Callable[[Framed], Any]:
        """Return a function that decodes data of a schema."""
        assert schema is not None
        decode = self._decode_body(parsed(schema))
        return lambda framed: decode(framed.data)

    def _decode_body(self, writer: Any) -> DecodeOne:
        from fastavro import schemaless_reader

        reader = self._reader
        if _is_bytes(writer):
            return lambda body: body
        return lambda body: schemaless_reader(BytesIO(body), writer, reader)

    def column(
        self, schema_id: SchemaId, message: Any, bodies: pa.Array
    ) -> tuple[pa.Array, list[Failure]]:
        """Return data of a schema as an array, null for bad rows, and the bad rows with errors."""
        if schema_id not in self._blocks:
            self._blocks[schema_id] = self._block(parsed(self._checked_schema(schema_id)))
        block = self._blocks[schema_id]
        if block is None:
            return bodies, []
        values, failures = decode_block(bodies, block)
        return values, [(row, mismatch(schema_id, error)) for row, error in failures]

    def column_type(self) -> pa.DataType | None:
        """Return the type of the reader's schema, or None without one."""
        return None if self._reader is None else AvroTypes().of(self._reader).arrow

    def _block(self, writer: Any) -> Block | None:
        """Return how records are decoded, or None for bytes, which are a column already."""
        if _is_bytes(writer):
            return None
        decode_one = self._decode_body(writer)
        if self._reader is None:
            written = AvroTypes().of(writer)
            return avro_block(written, written, decode_one)
        try:
            written = AvroTypes().of(writer)
        except UnsupportedSchemaError:  # the reader's schema may be a column
            written = NO_TYPE
        wanted = AvroTypes().of(self._reader)
        if _has_aliases(self._reader):
            wanted = wanted._replace(plain=None)
        return avro_block(written, wanted, decode_one)


def _has_aliases(schema: Any) -> bool:
    """True if a definition or a field has another name, by which fastavro finds it."""
    if isinstance(schema, list):
        return any(map(_has_aliases, schema))
    if not isinstance(schema, dict):
        return False
    inner = [schema.get(name) for name in ("type", "items", "values")]
    return "aliases" in schema or _has_aliases([*inner, *schema.get("fields", ())])


def _is_bytes(schema: Any) -> bool:
    """True for bytes alone, which Confluent's serializers write without their length."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def parsed(schema: Schema) -> Any:
    """Return a schema as fastavro reads it, with the types of its references in it."""
    from fastavro.repository import AbstractSchemaRepository
    from fastavro.schema import load_schema

    named = _named(schema)

    class Loaded(AbstractSchemaRepository):  # type: ignore[misc, unused-ignore]
        def load(self, name: str) -> Any:
            if name not in named:
                raise UnsupportedSchemaError(
                    f"the schema uses {name!r}, which neither it nor its references define"
                )
            return deepcopy(named[name])

    try:
        return load_schema("$root", repo=Loaded())
    except UnsupportedSchemaError:
        raise
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
