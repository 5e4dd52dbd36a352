"""The place of the schema's id in a record, as Confluent's serializers write it.

1. v0 is ``00`` and the number of the schema in four bytes, before the data.
2. v1 is ``01`` and the GUID of the schema in 16 bytes, before the data.
3. v1 may be in the header ``__key_schema_id`` or ``__value_schema_id`` instead.

Protobuf has the index of the message after the id, in the header, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kohort.schemas._errors import FramingError

SchemaId: TypeAlias = int | UUID
"""Number of a schema, or its GUID."""

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"
V0, V1 = 0, 1
V0_LENGTH, V1_LENGTH = 5, 17


class Framed(NamedTuple):
    """Data with the id of its schema."""

    schema_id: SchemaId
    data: bytes
    """The bytes after the id, or all bytes if the id is in a header."""
    tail: bytes | None
    """The bytes after the id in a header, or None if the id is before the data."""


def header_name(*, is_key: bool) -> str:
    """Return the name of the header that may have the GUID."""
    return KEY_HEADER if is_key else VALUE_HEADER


def unframe(data: bytes, headers: Iterable[tuple[str, bytes | None]] | None, name: str) -> Framed:
    """Return the id and the data of a record. The first header of the name wins."""
    for key, value in headers or ():
        if key == name and value is not None:
            schema_id, length = id_of(value)
            return Framed(schema_id, data, value[length:])
    schema_id, length = id_of(data)
    return Framed(schema_id, data[length:], None)


def id_of(data: bytes) -> tuple[SchemaId, int]:
    """Return the id at the beginning of bytes, and its length. Raises FramingError."""
    magic = data[0] if data else -1
    if magic == V0 and len(data) >= V0_LENGTH:
        return int.from_bytes(data[1:V0_LENGTH], "big"), V0_LENGTH
    if magic == V1 and len(data) >= V1_LENGTH:
        return UUID(bytes=bytes(data[1:V1_LENGTH])), V1_LENGTH
    raise FramingError(
        f"{len(data)} bytes beginning with {bytes(data[:5]).hex() or 'nothing'} have no schema id. "
        "The producer did not use a serializer of the schema registry, so read the record without "
        "its schema"
    )
