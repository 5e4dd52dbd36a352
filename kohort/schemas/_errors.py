"""Errors of schemas and of their registry."""

from __future__ import annotations

from kohort import KafkaError
from kohort.errors import DeserializerNotReadyError


class SchemaError(KafkaError):
    """Base class of the errors of schemas, of their registry and of the data that they describe."""


class RegistryUnavailableError(SchemaError):
    """Registry that cannot be reached, or that responds with 429 or 5xx until the time limit."""

    retriable = True


class RegistryRefusedError(SchemaError):
    """Response of the registry that refuses the call, for example because of the login."""


class UnknownSchemaError(SchemaError):
    """Schema that the registry does not have."""


class SchemaNotPreparedError(SchemaError, DeserializerNotReadyError):
    """Schema that no ``prepare()`` has loaded, because deserializers do no I/O.

    ``poll()`` loads it and decodes the record again.
    """


class FramingError(SchemaError, ValueError):
    """Bytes that do not begin with the id of a schema."""


class SchemaMismatchError(SchemaError, ValueError):
    """Bytes that their schema does not describe, or a schema of another kind."""


class UnsupportedSchemaError(SchemaError, ValueError):
    """Schema that cannot be read, or that has no columns."""
