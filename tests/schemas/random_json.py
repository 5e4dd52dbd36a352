"""Random JSON Schemas with random values, of which some are not valid."""

from __future__ import annotations

import string
from random import Random
from typing import Any

DRAFTS = [None, "http://json-schema.org/draft-07/schema#"]
DRAFTS.append("https://json-schema.org/draft/2020-12/schema")
SCALARS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "maxLength": 2},
    {"type": "integer"},
    {"type": "integer", "minimum": 0},
    {"type": "number", "multipleOf": 0.5},
    {"type": "boolean"},
    {"type": ["null", "string"]},
    {"enum": ["RED", "GREEN", 3]},
    {"oneOf": [{"type": "integer"}, {"type": "string", "pattern": "^z"}]},
    {"$ref": "#/definitions/tea"},
    {},
]
TYPED: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 1, "maxLength": 2},
    {"type": "string", "pattern": "^t"},
    {"type": "integer"},
    {"type": "integer", "minimum": 0, "exclusiveMaximum": 9},
    {"type": "number", "multipleOf": 0.5},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
    {"type": "boolean"},
    {"type": ["null", "string"], "title": "Tea"},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"type": "string", "enum": ["tea", "RED"]},
    {"type": ["string", "null"], "enum": ["tea", None]},
    {"enum": ["", "te"]},
    {"$ref": "#/definitions/tea"},
]
"""Schemas whose values have one type."""
VALUES: list[Any] = ["", "zoë", "RED", 3, -1, 2.5, 0.25, True, None, [], {}, ["a", 1], {"a": "b"}]


class RandomJson:
    """A source of schemas and values."""

    def __init__(
        self, seed: int, *, scalars: list[dict[str, Any]] = SCALARS, errors: float = 0.2
    ) -> None:
        self.random = Random(seed)
        self._scalars = scalars
        self._errors = errors
        """Share of values of another type."""

    def schema(self) -> dict[str, Any]:
        """Return the schema of an object."""
        found = self._object(2) | {"definitions": {"tea": {"type": "string", "minLength": 1}}}
        draft = self.random.choice(DRAFTS)
        return found if draft is None else found | {"$schema": draft}

    def _object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(string.ascii_lowercase, self.random.randint(1, 4))
        found = {
            "type": "object",
            "properties": {name: self._any(depth - 1) for name in names},
            "required": names[: self.random.randint(0, 2)],
        }
        return found | self.random.choice([{}, {"additionalProperties": False}])

    def _any(self, depth: int) -> dict[str, Any]:
        if depth <= 0 or self.random.random() < 0.6:
            return self.random.choice(self._scalars)
        if self.random.random() < 0.5:
            return {"type": "array", "items": self._any(depth - 1), "maxItems": 2}
        return self._object(depth)

    def value(self, schema: dict[str, Any]) -> Any:
        """Return a value that is often valid."""
        random = self.random
        if schema.get("type") == "object" and random.random() > self._errors / 4:
            properties = schema["properties"]
            chosen = [name for name in properties if random.random() < 0.9]
            return {name: self.value(properties[name]) for name in chosen}
        if schema.get("type") == "array" and random.random() > self._errors / 4:
            return [self.value(schema["items"]) for _ in range(random.randrange(3))]
        fitting = {"string": "tea"[: random.randrange(4)], "integer": 7, "number": 1.5}
        kind = str(schema.get("type"))
        if random.random() > self._errors and kind in fitting:
            return fitting[kind]
        return random.choice(VALUES)
