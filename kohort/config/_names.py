"""Names of options: dotted ones read, unknown ones answered with the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.config._option import Option, invalid
from kohort.config._unsupported import KEYWORDS, PREFIXES, PROPERTIES, Unsupported
from kohort.errors import UnknownOptionError


def read_properties(properties: Mapping[str, Any], options: Iterable[Option]) -> dict[str, Any]:
    """Dotted names -> values by keyword. None counts as not given. TypeError for no mapping."""
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties must be a mapping of dotted names, not {properties!r}")
    known = {dotted: each for each in options for dotted in each.properties}
    values: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for name, value in properties.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a property must be a str, not {name!r}")
        if value is None:
            continue
        if name not in known:
            _refuse(name, value, known)
            continue
        each = known[name]
        checked = each.read(value, name)
        if each.name in values and values[each.name] != checked:
            raise invalid(name, value, f"the same as {given_as[each.name]}, which means the same")
        values[each.name] = checked
        given_as[each.name] = name
    return values


def unknown_keyword(name: str, known: Iterable[str]) -> UnknownOptionError:
    """The error for a keyword that no client has."""
    names = list(known)
    undotted = name.replace(".", "_")
    if undotted != name and undotted in names:
        return UnknownOptionError(
            f"no option is called {name!r}: write {undotted}, or use from_properties()"
        )
    return _unknown(name, names)


def _refuse(name: str, value: Any, known: Mapping[str, Option]) -> None:
    """Raise for a name that is not supported, unless its value is harmless."""
    unsupported = _UNSUPPORTED.get(name)
    if unsupported is None:
        for prefix, why in PREFIXES:
            if name.startswith(prefix):
                unsupported = Unsupported(name, why)
    if unsupported is None:
        raise _unknown(name, [*known, *_UNSUPPORTED])
    unsupported.check(value, name)


def _unknown(name: str, known: list[str]) -> UnknownOptionError:
    import difflib  # for this error alone

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "see docs/configuration.md for all options"
    return UnknownOptionError(f"no option is called {name!r}: {hint}")


_UNSUPPORTED = {dotted: each for each in (*KEYWORDS, *PROPERTIES) for dotted in each.properties}
