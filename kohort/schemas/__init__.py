"""Values with a schema in a registry: Avro, record by record and as columns."""

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
from kohort.schemas._registry import Schema, SchemaRegistry

__all__ = [
    "AvroDeserializer",
    "FramingError",
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
