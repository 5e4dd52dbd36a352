"""Deserializers as functions ``(topic, headers, data) -> value``."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from typing import Any

from kohort.config.options._option_types import OptionType

Deserialize = Callable[[str, Any, bytes | None], Any]
"""Function (topic, headers, data) -> value. None stays None, as in the Java client."""


class Deserializer(OptionType):
    """A callable that takes bytes, an object with ``deserialize``, or None."""

    expected = (
        "a callable that takes bytes, an object with deserialize(topic, headers, data), or None"
    )

    def check(self, value: Any) -> Any:
        resolve(value)
        return value

    def parse(self, text: str) -> Callable[[bytes], Any] | None:
        name = text.removeprefix("org.apache.kafka.common.serialization.")
        if name not in _JAVA:
            raise ValueError(f"kohort has no deserializer for {text}; give one in Python")
        return _JAVA[name]


def resolve(deserializer: Any) -> Deserialize | None:
    """Return a deserializer as a function. None stays None, which leaves the bytes."""
    if deserializer is None:
        return None
    method = getattr(deserializer, "deserialize", None)
    if callable(method) and not isinstance(deserializer, type):
        if _takes(method, 3):
            return _skip_none(method)
        if _takes(method, 2):
            return _skip_none(lambda topic, _, data: method(topic, data))
        raise TypeError("its deserialize() takes neither three arguments nor two (topic, data)")
    if not callable(deserializer):
        raise TypeError("not callable")
    if not _takes(deserializer, 1):
        raise TypeError("it cannot be called with one argument")
    return _skip_none(lambda _topic, _headers, data: deserializer(data))


def _skip_none(call: Callable[[str, Any, bytes], Any]) -> Deserialize:
    def deserialize(topic: str, headers: Any, data: bytes | None) -> Any:
        return None if data is None else call(topic, headers, data)

    return deserialize


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some built-in callables have no signature to inspect, so calling them is the only test.
        return True
    try:
        signature.bind(*([None] * count))
    except TypeError:
        return False
    return True


def _unpack(layout: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(layout).unpack
    return lambda data: unpack(data)[0]


def _text(data: bytes) -> str:
    return bytes(data).decode()


def _uuid(data: bytes) -> Any:
    from uuid import UUID

    return UUID(_text(data))


_JAVA: dict[str, Callable[[bytes], Any] | None] = {
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "StringDeserializer": _text,
    "UUIDDeserializer": _uuid,
    "ShortDeserializer": _unpack(">h"),
    "IntegerDeserializer": _unpack(">i"),
    "LongDeserializer": _unpack(">q"),
    "FloatDeserializer": _unpack(">f"),
    "DoubleDeserializer": _unpack(">d"),
    "BooleanDeserializer": _unpack(">?"),
}
"""Deserializers of Kafka by class name, so that Java property files work unchanged."""
