"""JSON Schemas as Arrow types, and which of their rules can be checked on columns.

A value that has no single type becomes its JSON text. So do a schema without ``type``, an object
whose properties are not named, and an object that contains itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.schemas._needs import LateModule

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LateModule("pyarrow")


class JsonField(NamedTuple):
    """A property of an object."""

    name: str
    of: JsonType
    is_required: bool


class JsonType(NamedTuple):
    """A JSON Schema as a type."""

    kind: str
    """A type of JSON Schema, ``map`` for an object of any names, or ``text`` for any value."""
    arrow: pa.DataType
    is_read: bool
    """True if pyarrow's reader reads such values."""
    is_checked: bool = False
    """True if columns can be checked by all rules of the schema."""
    is_nullable: bool = False
    rules: dict[str, Any] = {}
    """The keywords that constrain a value of this kind."""
    fields: tuple[JsonField, ...] = ()
    items: JsonType | None = None
    """The type of items, or of the values of a map."""

    def every(self) -> Iterable[JsonType]:
        """Yield this type and all in it."""
        yield self
        for each in (*(field.of for field in self.fields), self.items):
            if each is not None:
                yield from each.every()


STRUCTURE = {"type", "properties", "required", "items", "format", "additionalProperties"}
BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
LENGTHS = {"minLength", "maxLength", "minItems", "maxItems"}
BY_VALUE = {"enum", "const", "pattern", "multipleOf"}
"""Keywords that are checked once for each different value."""
CHECKED = {
    "object": STRUCTURE - {"items"},
    "array": {"type", "items", "minItems", "maxItems"},
    "string": {"type", "format", "minLength", "maxLength", "pattern", "enum", "const"},
    "integer": {"type", "format", "multipleOf", "enum", "const"} | BOUNDS,
    "number": {"type", "format", "multipleOf", "enum", "const"} | BOUNDS,
    "boolean": {"type", "enum", "const"},
}
DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
"""Drafts whose keywords mean what is written here."""


class JsonTypes:
    """The types of one schema. ``validator`` is that of jsonschema."""

    def __init__(self, validator: Any) -> None:
        self._keywords = set(validator.VALIDATORS)
        dialect = str(validator.META_SCHEMA.get("$schema", ""))
        self._is_known = any(draft in dialect for draft in DRAFTS)
        self._has_siblings = any(draft in dialect for draft in DRAFTS[3:])
        """True if other keywords count beside ``$ref``."""

    def of(self, schema: Any, resolver: Any, outer: tuple[int, ...] = ()) -> JsonType:
        """Return the type of a schema. ``outer`` has the ids of the enclosing schemas."""
        if not isinstance(schema, dict) or id(schema) in outer:
            return any_value()
        outer = (*outer, id(schema))
        keywords = self._keywords & set(schema)
        if "$ref" in schema:
            return self._referred(schema, keywords, resolver, outer)
        kinds = _kinds(schema)
        if kinds is None:
            return self._combined(schema, keywords, resolver, outer)
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else [None])
        is_nullable = "null" in kinds and None in allowed
        kinds.discard("null")
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        kind = kinds.pop() if len(kinds) == 1 else "null" if not kinds else "text"
        found = self._made(kind, schema, resolver, outer)
        is_checked = (
            found.is_checked
            and self._is_known
            and keywords <= CHECKED.get(found.kind, set())
            and not any(isinstance(schema.get(each), bool) for each in BOUNDS)
        )
        return found._replace(is_checked=is_checked, is_nullable=is_nullable, rules=schema)

    def _referred(
        self, schema: Any, keywords: set[str], resolver: Any, outer: tuple[int, ...]
    ) -> JsonType:
        from referencing.exceptions import Unresolvable

        try:
            found = resolver.lookup(schema["$ref"])
        except Unresolvable:
            return any_value()
        kind = self.of(found.contents, found.resolver, outer)
        is_alone = keywords == {"$ref"} or not self._has_siblings
        return kind if is_alone else kind._replace(is_checked=False)

    def _combined(
        self, schema: Any, keywords: set[str], resolver: Any, outer: tuple[int, ...]
    ) -> JsonType:
        """Return the type of one schema, alone or beside null."""
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword not in keywords:
                continue
            choices = schema[keyword]
            others = [each for each in choices if each != {"type": "null"}]
            if len(others) != 1 or len(choices) > (1 if keyword == "allOf" else 2):
                continue
            found = self.of(others[0], resolver, outer)
            is_clear = keywords == {keyword} and not (keyword == "oneOf" and found.is_nullable)
            return found._replace(
                is_checked=found.is_checked and is_clear,
                is_nullable=found.is_nullable or len(choices) == 2,
            )
        return any_value()

    def _made(self, kind: str, schema: Any, resolver: Any, outer: tuple[int, ...]) -> JsonType:
        if kind == "object":
            return self._object(schema, resolver, outer)
        if kind == "array" and isinstance(schema.get("items"), dict):
            items = self.of(schema["items"], resolver, outer)
            return JsonType(
                kind, pa.large_list(items.arrow), items.is_read, items.is_checked, items=items
            )
        if kind in _SCALARS:
            return JsonType(kind, _SCALARS[kind](), is_read=kind != "null", is_checked=True)
        return any_value()

    def _object(self, schema: Any, resolver: Any, outer: tuple[int, ...]) -> JsonType:
        others = schema.get("additionalProperties")
        required = schema.get("required", ())
        required = required if isinstance(required, list) else ()
        properties = schema.get("properties") or {}
        if not properties:
            if not isinstance(others, dict):
                return any_value()
            items = self.of(others, resolver, outer)
            return JsonType("map", pa.map_(pa.large_string(), items.arrow), False, items=items)
        fields = tuple(
            JsonField(name, self.of(each, resolver, outer), name in required)
            for name, each in properties.items()
        )
        return JsonType(
            "object",
            pa.struct([(name, of.arrow) for name, of, _ in fields]),
            is_read=all(of.is_read for _, of, _ in fields),
            is_checked=all(of.is_checked for _, of, _ in fields)
            and not isinstance(others, dict)
            and set(required) <= set(properties),
            fields=fields,
        )


_SCALARS: dict[str, Any] = {
    "string": lambda: pa.large_string(),
    "integer": lambda: pa.int64(),
    "number": lambda: pa.float64(),
    "boolean": lambda: pa.bool_(),
    "null": lambda: pa.null(),
}


def any_value() -> JsonType:
    """Return the type of any value."""
    return JsonType("text", pa.large_string(), is_read=False)


def _kinds(schema: Any) -> set[str] | None:
    """Return the types that a schema allows, or None if it does not say."""
    if "type" in schema:
        named = schema["type"]
        kinds = [named] if isinstance(named, str) else named
        is_plain = all(isinstance(each, str) for each in kinds)
        return set(kinds) if is_plain else None
    if isinstance(schema.get("properties"), dict):
        return {"object"}
    if isinstance(schema.get("items"), dict):
        return {"array"}
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    kinds = {_KIND_OF.get(type(each), "object") for each in values}
    return kinds if kinds and "object" not in kinds else None


_KIND_OF = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def stored(value: Any, of: JsonType) -> Any:
    """Return a value as pyarrow takes it for the type. Raises TypeError for a value of another."""
    if value is None:
        return None
    if of.kind == "text":
        return json.dumps(value, ensure_ascii=False)
    if of.kind == "object":
        return {name: stored(_of(dict, value).get(name), inner) for name, inner, _ in of.fields}
    if of.items is not None and of.kind == "map":
        return [(key, stored(each, of.items)) for key, each in _of(dict, value).items()]
    if of.items is not None:
        return [stored(each, of.items) for each in _of(list, value)]
    if of.kind == "number":
        return float(_of((int, float), value))
    if of.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return _of({"integer": int, "boolean": bool, "string": str}.get(of.kind, ()), value)


def _of(kinds: Any, value: Any) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise TypeError(f"the column takes no {type(value).__name__}, which the schema allows")
    return value
