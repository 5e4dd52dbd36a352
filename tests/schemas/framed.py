"""Records as producers of a schema registry write them, without a producer."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any
from uuid import UUID

from kohort.records.tables._arrow import arrow_schema


def framed(schema_id: int | UUID, body: bytes) -> bytes:
    """Return data with the id before it: v0 for a number, v1 for a GUID."""
    if isinstance(schema_id, UUID):
        return b"\x01" + schema_id.bytes + body
    return struct.pack(">bI", 0, schema_id) + body


def avro(schema: Any, value: Any) -> bytes:
    """Return a value in Avro. ``schema`` is a definition, or one as JSON."""
    from fastavro import parse_schema, schemaless_writer

    out = BytesIO()
    is_json = isinstance(schema, str) and schema[:1] in ("{", "[", '"')
    schemaless_writer(out, parse_schema(json.loads(schema) if is_json else schema), value)
    return out.getvalue()


def table(values: Sequence[bytes | None], headers: dict[int, list[Any]] | None = None) -> Any:
    """Return rows as poll_arrow() does. ``headers`` has those of some rows."""
    import pyarrow as pa

    count, kinds = len(values), arrow_schema()
    given = [(headers or {}).get(row, []) for row in range(count)]
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * count,
            "partition": pa.array([2] * count, pa.int32()),
            "offset": pa.array(range(10, 10 + count), pa.int64()),
            "timestamp": pa.array([1000] * count, pa.timestamp("ms", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array(given, kinds.field("headers").type),
        },
        schema=kinds,
    )
