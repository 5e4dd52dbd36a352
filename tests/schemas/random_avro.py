"""Random Avro schemas with random values."""

from __future__ import annotations

import string
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

PRIMITIVES = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("long", "nobody-knows"),
]
EPOCH = datetime(1970, 1, 1)


class RandomAvro:
    """A source of schemas and values. ``with_unions`` adds unions, which are no columns."""

    def __init__(self, seed: int, *, with_unions: bool = False) -> None:
        self.random = Random(seed)
        self._with_unions = with_unions
        self._defined: dict[str, Any] = {}

    def record(self, depth: int = 3) -> Any:
        """Return the schema of a record."""
        name = self._name()
        names = self.random.sample(string.ascii_lowercase, self.random.randint(0, 5))
        fields = [{"name": each, "type": self.schema(depth - 1)} for each in names]
        schema = {"type": "record", "name": name, "doc": "a record", "fields": fields}
        self._defined[name] = schema
        return schema

    def schema(self, depth: int, *, is_branch: bool = False) -> Any:
        """Return a schema with at most ``depth`` levels. A branch of a union is no union."""
        kinds = ["primitive"] * 4 + ["logical", "logical", "enum", "fixed", "again"]
        if depth > 0:
            kinds += ["array", "map", "record"]
        if not is_branch:
            kinds += ["nullable"] * 3 + ["union"] * self._with_unions
        kind = self.random.choice(kinds)
        if kind == "again" and self._defined:
            return self.random.choice(sorted(self._defined))
        if kind == "logical":
            return self._logical()
        if kind == "nullable":
            found = self.schema(depth - 1, is_branch=True)
            return self.random.choice([["null", found], [found, "null"]])
        if kind == "enum":
            symbols = self.random.sample(["RED", "GREEN", "BLUE", "A_1"], self.random.randint(1, 4))
            return self._define({"type": "enum", "symbols": symbols})
        if kind == "fixed":
            return self._define({"type": "fixed", "size": self.random.randint(1, 9)})
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind == "record":
            return self.record(depth)
        if kind == "union":
            return ["null", "int", "string", {"type": "array", "items": "boolean"}]
        return self.random.choice([each := self.random.choice(PRIMITIVES), {"type": each}])

    def _logical(self) -> Any:
        base, logical = self.random.choice(LOGICAL)
        schema: dict[str, Any] = {"type": base, "logicalType": logical}
        if logical == "decimal":
            schema |= {"precision": self.random.choice([9, 18]), "scale": self.random.randint(0, 4)}
        return self._define(schema | {"size": 9}) if base == "fixed" else schema

    def _define(self, schema: dict[str, Any]) -> Any:
        name = self._name()
        self._defined[name] = schema = schema | {"name": name}
        return schema

    def _name(self) -> str:
        return f"org.example.N{self.random.randrange(1 << 60)}"

    def value(self, schema: Any) -> Any:
        """Return a value of a schema."""
        random = self.random
        if isinstance(schema, list):
            return self.value(random.choice(schema))
        if isinstance(schema, str):
            schema = self._defined.get(schema, {"type": schema})
        kind, logical = schema["type"], schema.get("logicalType")
        if logical not in (None, "nobody-knows"):
            return self._logical_value(schema, logical)
        match kind:
            case "null":
                return None
            case "boolean":
                return random.random() < 0.5
            case "int":
                return random.choice([0, -1, random.randrange(-(1 << 31), 1 << 31)])
            case "long":
                return random.choice([0, 63, -64, random.randrange(-(1 << 63), 1 << 63)])
            case "float":
                return random.randrange(-1000, 1000) / 8
            case "double":
                return random.choice([0.0, 1e300, random.uniform(-1, 1)])
            case "bytes":
                return random.randbytes(random.randrange(9))
            case "string":
                return random.choice(["", "tea", "zoë", "\U0001f375", "x" * random.randrange(200)])
            case "enum":
                return random.choice(schema["symbols"])
            case "fixed":
                return random.randbytes(schema["size"])
            case "array":
                return [self.value(schema["items"]) for _ in range(random.randrange(4))]
            case "map":
                return {key: self.value(schema["values"]) for key in random.sample("abc", 2)}
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}

    def _logical_value(self, schema: Any, logical: str) -> Any:
        random = self.random
        micros = random.randrange(-(10**15), 10**15)
        if logical.endswith("millis"):
            micros -= micros % 1000
        if logical == "date":
            return date(1970, 1, 1) + timedelta(days=random.randrange(-9999, 9999))
        if logical.startswith("time-"):
            micros %= 86_400_000_000
            return (EPOCH + timedelta(microseconds=micros)).time() or time()
        if logical.startswith("local-"):
            return EPOCH + timedelta(microseconds=micros)
        if logical.startswith("timestamp-"):
            return EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=micros)
        if logical == "uuid":
            return uuid.UUID(int=random.getrandbits(128))
        return Decimal(random.randrange(-(10**8), 10**8)).scaleb(-schema["scale"])
