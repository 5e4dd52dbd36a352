"""Records as producers of a schema registry write them, without a producer."""

from __future__ import annotations

import json
import struct
from io import BytesIO
from typing import Any
from uuid import UUID


def framed(schema_id: int | UUID, body: bytes) -> bytes:
    """Return data with the id before it: v0 for a number, v1 for a GUID."""
    if isinstance(schema_id, UUID):
        return b"\x01" + schema_id.bytes + body
    return struct.pack(">bI", 0, schema_id) + body


def avro(schema: Any, value: Any) -> bytes:
    """Return a value in Avro. ``schema`` is JSON or text."""
    from fastavro import parse_schema, schemaless_writer

    out = BytesIO()
    definition = json.loads(schema) if isinstance(schema, str) else schema
    schemaless_writer(out, parse_schema(definition), value)
    return out.getvalue()
