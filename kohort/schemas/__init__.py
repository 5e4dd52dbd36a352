"""Values with a schema in a registry: Avro, JSON Schema and Protobuf."""

from __future__ import annotations

from kohort.schemas._avro import AvroDeserializer
from kohort.schemas._columns import columns, columns_async
from kohort.schemas._errors import (
    FramingError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaError,
    SchemaMismatchError,
    SchemaNotPreparedError,
    UnknownSchemaError,
    UnsupportedSchemaError,
)
from kohort.schemas._json import JsonDeserializer
from kohort.schemas._protobuf import ProtobufDeserializer
from kohort.schemas._registry import Schema, SchemaRegistry

__all__ = [
    "AvroDeserializer",
    "FramingError",
    "JsonDeserializer",
    "ProtobufDeserializer",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "Schema",
    "SchemaError",
    "SchemaMismatchError",
    "SchemaNotPreparedError",
    "SchemaRegistry",
    "UnknownSchemaError",
    "UnsupportedSchemaError",
    "columns",
    "columns_async",
]
