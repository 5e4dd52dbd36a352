"""Batches from logs of Apache Kafka 4.3.1: written by four clients, decoded by Kafka."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.records import Headers

_FILE = Path(__file__).parent.parent / "data" / "record_batches.json"


@dataclass(frozen=True)
class Vector:
    """One batch: its bytes, and the contents that Kafka decodes."""

    name: str
    raw: bytes
    expected: dict[str, Any]

    def records(self) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Return offset, timestamp, key, value and headers of each record."""
        return [
            (
                record["offset"],
                record["timestamp"],
                _bytes(record["key"]),
                _bytes(record["value"]),
                tuple((name, _bytes(value)) for name, value in record["headers"]),
            )
            for record in self.expected["records"]
        ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


VECTORS = tuple(
    Vector(f"{batch['topic']}-{batch['base_offset']}", base64.b64decode(batch["batch"]), batch)
    for batch in json.loads(_FILE.read_text())["batches"]
)


def vector(name: str) -> Vector:
    """Return the vector of this name (``topic-base_offset``)."""
    return next(vector for vector in VECTORS if vector.name == name)
