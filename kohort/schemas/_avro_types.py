"""Avro schemas as Arrow types, and as schemas that polars reads.

polars reads no maps, no unions of several types, no repeated names, no null alone, and enums in few
places. So a repeated name becomes a second definition, and an enum is read as the int that it is.
The other three are read record by record. Text, bytes and lists have Arrow's large types, which
polars has, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.schemas._errors import UnsupportedSchemaError
from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")

MOST_DIGITS = 38
"""Digits of Arrow's decimal128."""


class AvroType(NamedTuple):
    """A type of Avro in both systems."""

    plain: Any
    """Schema for polars, or None if polars cannot read it. An int with symbols is an enum."""
    arrow: pa.DataType


NO_TYPE = AvroType(None, None)
"""The type of a schema that is no column."""


class AvroTypes:
    """The types of one schema. It gives each definition a new name, as polars needs."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._count = 0

    def of(self, schema: Any, space: str = "", outer: tuple[str, ...] = ()) -> AvroType:
        """Return the type of a schema of fastavro. Raises UnsupportedSchemaError.

        ``space`` is the enclosing namespace, and ``outer`` has the names of enclosing records.
        """
        if isinstance(schema, list):
            return self._union(schema, space, outer)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, space, outer)
        if kind == "array":
            items = self.of(schema["items"], space, outer)
            # A wrong count of items without bytes would keep polars busy for hours.
            is_read = items.plain is not None and not _has_no_bytes(items.plain)
            plain = {"type": "array", "items": items.plain} if is_read else None
            return AvroType(plain, pa.large_list(items.arrow))
        if kind == "map":
            values = self.of(schema["values"], space, outer)
            return AvroType(None, pa.map_(pa.large_string(), values.arrow))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, space, outer)
        if kind == "null":
            return AvroType(None, pa.null())
        if kind in _PRIMITIVES:
            return _primitive(kind, schema)
        name = kind if "." in kind or not space else f"{space}.{kind}"
        found = self._named.get(name) or self._named.get(kind)
        if found is None:
            raise UnsupportedSchemaError(f"the schema uses {kind!r} and does not define it")
        definition, inner_space = found
        return self._definition(definition, inner_space, outer)

    def _union(self, schema: list[Any], space: str, outer: tuple[str, ...]) -> AvroType:
        others = [each for each in schema if each not in ("null", {"type": "null"})]
        if not others:
            return self.of("null")
        if len(others) > 1:
            raise UnsupportedSchemaError(
                "the schema has a union of several types, which is no column. Read such a topic "
                "with a deserializer"
            )
        found = self.of(others[0], space, outer)
        if len(schema) == 1:
            # polars reads no union of one type.
            return AvroType(None, found.arrow)
        order = ["null" if each is not others[0] else found.plain for each in schema]
        return AvroType(None if found.plain is None else order, found.arrow)

    def _definition(self, schema: Any, space: str, outer: tuple[str, ...]) -> AvroType:
        name = str(schema["name"])
        space = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
        name = name if "." in name or not space else f"{space}.{name}"
        if name in outer:
            raise UnsupportedSchemaError(
                f"{name} contains itself, which is no column. Read such a topic with a deserializer"
            )
        self._named[name] = schema, space
        self._count += 1
        plain: Any = {"type": schema["type"], "name": f"n{self._count}", "origin": name}
        if schema["type"] == "enum":
            symbols = {"type": "int", "origin": name, "symbols": schema["symbols"]}
            return AvroType(symbols, pa.large_string())
        if schema["type"] == "fixed":
            plain["size"] = schema["size"]
            return _decimal(schema, plain) or AvroType(plain, pa.large_binary())
        fields = [
            (each["name"], self.of(each["type"], space, (*outer, name)))
            for each in schema["fields"]
        ]
        plain["type"] = "record"
        plain["fields"] = [
            {"name": field, "type": of.plain} | {k: each[k] for k in ("default",) if k in each}
            for (field, of), each in zip(fields, schema["fields"], strict=True)
        ]
        is_plain = all(of.plain is not None for _, of in fields)
        return AvroType(plain if is_plain else None, pa.struct([(f, of.arrow) for f, of in fields]))


_PRIMITIVES = {"boolean", "int", "long", "float", "double", "bytes", "string"}
_LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    },
}
"""Logical types that fastavro and polars convert. Others are what they are based on."""


def _primitive(kind: str, schema: Any) -> AvroType:
    logical = schema.get("logicalType")
    if logical in _LOGICAL.get(kind, ()):
        types = {
            "date": pa.date32(),
            "time-millis": pa.time32("ms"),
            "time-micros": pa.time64("us"),
            "timestamp-millis": pa.timestamp("ms", "UTC"),
            "timestamp-micros": pa.timestamp("us", "UTC"),
            "local-timestamp-millis": pa.timestamp("ms"),
            "local-timestamp-micros": pa.timestamp("us"),
        }
        return AvroType({"type": kind, "logicalType": logical}, types[logical])
    if kind == "bytes":
        return _decimal(schema, {"type": kind}) or AvroType(kind, pa.large_binary())
    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.large_string(),
    }
    return AvroType(kind, types[kind])


def _has_no_bytes(plain: Any) -> bool:
    if not isinstance(plain, dict):
        return False
    if plain["type"] == "record":
        return all(_has_no_bytes(field["type"]) for field in plain["fields"])
    return plain.get("size") == 0


def _decimal(schema: Any, plain: Any) -> AvroType | None:
    """Return the type of a decimal, or None for other bytes."""
    if schema.get("logicalType") != "decimal":
        return None
    digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if digits > MOST_DIGITS:
        return AvroType(None, pa.decimal256(digits, scale))
    plain = plain | {"logicalType": "decimal", "precision": digits, "scale": scale}
    return AvroType(plain, pa.decimal128(digits, scale))
