"""Every declared message compared with the facts of Kafka's definitions, one line per field."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from kohort.protocol import ZERO_UUID, Message, Struct, VersionRange, api, messages
from kohort.protocol._layout import _type_of
from kohort.protocol._struct import LATEST, NO_VERSION
from tests.protocol._data import DATA

KINDS = {
    "bool": "bool",
    "bytes": "bytes",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "records": "records",
    "string": "string",
    "u16": "uint16",
    "u32": "uint32",
    "uuid": "uuid",
    "{}": "struct",
}
ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "records": None, "uuid": ZERO_UUID}


class Fact(NamedTuple):
    """A message or field of Kafka's. ``words`` follow its name and type."""

    name: str
    kind: str
    array: bool
    words: list[str]
    fields: list[Fact]


@cache
def facts() -> dict[str, Fact]:
    """Return all messages by name.

    The words of a message are its API key, its versions and its first flexible version.
    """
    found: dict[str, Fact] = {}
    for file in ("schema_all.txt", "schema_coordinator.txt"):
        open_at: list[Fact] = []
        for line in (DATA / file).read_text().splitlines():
            depth = len(line) - len(line.lstrip())
            name, *words = line.split()
            if depth == 0:
                fact = found[name] = Fact(name, "message", False, words, [])
            else:
                name, kind = name.split(":")
                plain = kind.removeprefix("[]")
                fact = Fact(name, KINDS[plain], kind != plain, words, [])
                open_at[depth - 1].fields.append(fact)
            open_at[depth:] = [fact]
    return found


def _range(text: str) -> VersionRange:
    match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    assert match is not None, text
    return VersionRange(int(match[1]), LATEST if match[2] else int(match[3] or match[1]))


def _within(part: VersionRange, whole: VersionRange) -> set[int]:
    return {version for version in range(whole.first, whole.last + 1) if version in part}


def _default(fact: Fact) -> Any:
    text = next((word[1:] for word in fact.words if word[0] == "="), None)
    if text == "null":
        return None
    if fact.array:
        return []
    if fact.kind == "struct":
        return "a structure"
    if text is None:
        return ZEROS.get(fact.kind, False if fact.kind == "bool" else 0)
    if fact.kind == "string":
        return text
    return {"true": True, "false": False}[text] if fact.kind == "bool" else int(text)


def _compare(
    message: type[Message], struct: type[Struct], fact: Fact, live: VersionRange
) -> Iterator[str]:
    """Yield one line for each difference between a declared structure and the facts."""
    where = f"{message.__name__}: {struct.__name__}"
    declared = {spec.name: spec for spec in struct._fields}
    hints = inspect.get_annotations(struct, eval_str=True)
    if list(declared) != [field.name for field in fact.fields]:
        yield f"{where}: fields {list(declared)}, not {[field.name for field in fact.fields]}"
        return
    for field in fact.fields:
        spec = declared[field.name]
        kind, array, inner = _type_of(hints[field.name])
        versions = next((_range(w) for w in field.words if w[0].isdigit()), live)
        tag, tagged = None, NO_VERSION
        nullable = NO_VERSION
        for word in field.words:
            if word[0] == "?":
                nullable = _range(word[1:]) if word[1:] else versions
            elif word[0] == "#":
                number, _, text = word[1:].partition("@")
                tag, tagged = int(number), _range(text) if text else versions
        # The default of a field matters only in the versions that have the field.
        on = VersionRange(max(versions.first, live.first), min(versions.last, live.last))
        pairs: list[tuple[str, Any, Any]] = [
            ("kind", kind, field.kind),
            ("array", array, field.array),
            ("versions", _within(spec.versions, live), _within(versions, live)),
            ("nullable", _within(spec.nullable, on), _within(nullable, on)),
            ("tag", spec.tag, tag),
            ("tagged", _within(spec.tagged, on), _within(tagged, on)),
        ]
        made = spec.make_default()
        pairs.append(
            ("default", "a structure" if isinstance(made, Struct) else made, _default(field))
        )
        yield from (
            f"{where}.{field.name}: {what} is {ours!r}, not {theirs!r}"
            for what, ours, theirs in pairs
            if ours != theirs
        )
        assert (
            (type(None) in getattr(hints[field.name], "__args__", ()))
            or not nullable.last > 0
            or (nullable == NO_VERSION)
        ), f"{where}.{field.name} may be null and is not annotated so"
        if inner is not None:
            yield from _compare(message, inner, field, live)


DECLARED = [getattr(messages, name) for name in messages.__all__]


@pytest.mark.parametrize("message", DECLARED, ids=lambda message: message.__name__)
def test_a_message_is_declared_as_kafka_defines_it(message: type[Message]) -> None:
    fact = facts()[message.__name__]
    key, versions, flexible = fact.words
    assert message.api_key == (-1 if key == "-" else int(key))
    assert message.versions == _range(versions)
    live = message.versions
    first = LATEST if flexible == "-" else int(flexible)
    assert _within(message.flexible, live) == {
        v for v in range(live.first, live.last + 1) if v >= first
    }
    assert list(_compare(message, message, fact, live)) == []


def test_request_and_response_belong_together() -> None:
    for message in DECLARED:
        if message.__name__.endswith("Request"):
            found = api(message.api_key)
            assert found.request is message
            assert found.response.__name__ == message.__name__.removesuffix("Request") + "Response"
            assert found.response.api_key == message.api_key
            assert found.response.versions == message.versions == found.versions
            assert found.name == message.__name__.removesuffix("Request")
            assert found.key.name.replace("_", "").lower() == found.name.lower()
