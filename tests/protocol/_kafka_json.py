"""Messages as the JSON that Kafka's converters write, for comparisons with golden frames."""

from __future__ import annotations

import base64
import re
from typing import Any

from kohort.protocol import Message, Struct
from kohort.protocol._layout import FieldLayout, struct_layout


def camel_case(name: str) -> str:
    """Return ``topic_id`` as ``topicId``."""
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def json_of(message: Message, version: int) -> dict[str, Any]:
    """Return all fields of the version, and tagged ones only if they differ from the default."""
    return _struct(type(message), message, version)


def _struct(message: type[Message], value: Struct, version: int) -> dict[str, Any]:
    layout = struct_layout(message, type(value), version)
    out: dict[str, Any] = {}
    for field in layout.inline + layout.tagged:
        held = getattr(value, field.name)
        if field in layout.tagged and held == field.spec.make_default():
            continue
        name = camel_case(field.name)
        if field.kind == "records":
            name, held = f"{name}SizeInBytes", len(held)  # Kafka writes the size only
        out[name] = _value(message, field, held, version)
    return out


def _value(message: type[Message], field: FieldLayout, held: Any, version: int) -> Any:
    if held is None or field.kind == "records":
        return held
    if field.array:
        return [_element(message, field, element, version) for element in held]
    return _element(message, field, held, version)


def _element(message: type[Message], field: FieldLayout, held: Any, version: int) -> Any:
    if field.struct is not None:
        return _struct(message, held, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(held).rstrip(b"=").decode()
    if field.kind == "bytes":
        return base64.b64encode(held).decode()
    return held
