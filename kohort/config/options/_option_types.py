"""Types of options: the check of a value, its normal form, and the parser of its text."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

INT32_MAX = 2**31 - 1
_PEERS = frozenset({"kafka", "aiokafka"})


class ValueFault(ValueError):
    """A wrong value. The message repeats no part of the value."""


class OptionType:
    """Base of the types of options. ``check`` accepts the values that it returns.

    ``check`` and ``parse`` raise ValueError or TypeError. The caller adds the name of the option.
    """

    expected: str = ""
    """Description of the value in errors and in the documentation."""
    annotation: str = ""
    """Type of the values that a caller may write, for kohort/_options.py."""
    is_opaque: bool = False
    """True if the ``repr`` of a section shows only the type of the value."""

    def check(self, value: Any) -> Any:
        """Return the normal form of the value."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Return the value of a text as Java's configuration reads it. ``check`` comes after."""
        return text

    def conceal(self, value: Any) -> Any:
        """Return the value in a form that no traceback shows. ``check`` accepts both forms."""
        return value

    def read_secret(self, secret: Any) -> Any:
        """Return a secret that was given under a dotted name, as Java reads it."""
        return secret


class Integer(OptionType):
    """A whole number. ``special`` maps further accepted values to their normal form."""

    def __init__(
        self,
        minimum: int,
        maximum: int = INT32_MAX,
        *,
        special: Mapping[Any, int | None] | None = None,
        expected: str = "",
    ) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.special = dict(special or {})
        upper = "" if maximum == INT32_MAX else f" and at most {maximum}"
        self.expected = expected or f"an int of at least {minimum}{upper}"
        self.annotation = "int | None" if None in self.special else "int"

    def check(self, value: Any) -> Any:
        if value is None or isinstance(value, int):
            if not isinstance(value, bool) and value in self.special:
                return self.special[value]
        if isinstance(value, bool):
            raise TypeError("a bool is not a number here")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        number = operator.index(value)
        if not self.minimum <= number <= self.maximum:
            raise ValueError("out of range")
        return number

    def parse(self, text: str) -> int:
        return int(text)


class Milliseconds(OptionType):
    """Milliseconds, which may be fractional. Negative numbers and None mean no limit."""

    expected = 'a number of milliseconds, or float("inf")'
    annotation = "float | None"

    def check(self, value: Any) -> float:
        if value is None:
            return math.inf
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise TypeError("not a number")
        return math.inf if value < 0 else float(value)

    def parse(self, text: str) -> float:
        return float(text)


class Boolean(OptionType):
    """True or False, but not 0, 1 or text."""

    expected = "True or False"
    annotation = "bool"
    _WORDS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

    def __init__(self, words: Mapping[str, bool] | None = None) -> None:
        self._words = self._WORDS if words is None else {**self._WORDS, **words}

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise TypeError("not a bool")
        return value

    def parse(self, text: str) -> bool:
        if text.lower() not in self._words:
            raise ValueError("neither true nor false")
        return self._words[text.lower()]


class Text(OptionType):
    """A string. It may be None if ``nullable``, and empty if ``empty``."""

    def __init__(
        self,
        *,
        nullable: bool = False,
        empty: bool = True,
        valid: Callable[[str], bool] | None = None,
    ) -> None:
        self.nullable = nullable
        self.empty = empty
        self.valid = valid
        self.expected = "a str" if empty else "a non-empty str"
        if valid is not None and valid.__doc__:
            self.expected += f" {valid.__doc__}"
        if nullable:
            self.expected += ", or None"
        self.annotation = "str | None" if nullable else "str"

    def check(self, value: Any) -> str | None:
        if value is None and self.nullable:
            return None
        if not isinstance(value, str):
            raise TypeError("not a str")
        if (not value and not self.empty) or (self.valid is not None and not self.valid(value)):
            raise ValueError("not valid")
        if len(value.encode()) > 32_767:
            raise ValueError("longer than the protocol's strings can be")
        return value


class OneOf(OptionType):
    """One of a few words. ``aliases`` maps words of other clients to these."""

    def __init__(self, *words: str, aliases: Mapping[str, str] | None = None) -> None:
        self.words = words
        self.aliases = dict(aliases or {})
        self.expected = "one of " + ", ".join(f'"{word}"' for word in words)
        self.annotation = literal(*words, *self.aliases)

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError("not a str")
        word = self.aliases.get(value.lower(), value.lower())
        if word not in self.words:
            raise ValueError("none of the words")
        return word


class OneOfOr(OneOf):
    """One of a few words, or a function that is not a coroutine function."""

    def __init__(self, *words: str, function: str) -> None:
        super().__init__(*words)
        self.expected += f", or {function}"
        self.annotation += " | Callable[[DataError], str]"

    def check(self, value: Any) -> Any:
        if isinstance(value, str):
            return super().check(value)
        if inspect.iscoroutinefunction(value):
            raise TypeError("a coroutine function would have to be awaited")
        if not callable(value):
            raise TypeError("neither a str nor callable")
        return value


class Function(OptionType):
    """A callable, or None."""

    def __init__(self, expected: str, annotation: str) -> None:
        self.expected = f"{expected} or None"
        self.annotation = f"{annotation} | None"

    def check(self, value: Any) -> Any:
        if value is not None and not callable(value):
            raise TypeError("not callable")
        return value


class Instance(OptionType):
    """An object of a class, or None."""

    def __init__(self, cls: type[Any], expected: str) -> None:
        self.cls = cls
        self.expected = f"{expected}, or None"
        self.annotation = f"{cls.__name__} | None"

    def check(self, value: Any) -> Any:
        if value is not None and not isinstance(value, self.cls):
            raise TypeError(f"not {self.expected}")
        return value


class SocketOptions(OptionType):
    """Arguments of ``socket.setsockopt``, one tuple for each call."""

    expected = "a list of (level, option, value) tuples for socket.setsockopt"
    annotation = "Sequence[tuple[int, int, int | bytes]]"

    def check(self, value: Any) -> tuple[tuple[int, int, int | bytes], ...]:
        checked = []
        for entry in _items(value):
            level, name, setting = entry
            if not isinstance(setting, bytes):
                setting = operator.index(setting)
            checked.append((operator.index(level), operator.index(name), setting))
        return tuple(checked)


class Assignors(OptionType):
    """Names, classes or instances of assignors, in order of preference."""

    annotation = "Assignor | Sequence[Assignor]"

    def __init__(self, names: Sequence[str], java: Mapping[str, str]) -> None:
        self.names = tuple(names)
        self.java = dict(java)
        known = ", ".join(f'"{name}"' for name in names)
        self.expected = f"a list of {known}, or of assignor classes or instances (name, assign)"

    def check(self, value: Any) -> tuple[Any, ...]:
        single = isinstance(value, (str, type)) or hasattr(value, "assign")
        entries = (value,) if single else _items(value)
        if not entries:
            raise ValueError("empty")
        return tuple(self._entry(entry) for entry in entries)

    def _entry(self, entry: Any) -> Any:
        if _top_package(entry) in _PEERS and isinstance(getattr(entry, "name", None), str):
            # A built-in assignor of another client selects kohort's assignor of the same name.
            entry = entry.name
        if isinstance(entry, str):
            name = self.java.get(entry, entry).lower()
            if name not in self.names:
                raise ValueError(f"no assignor is called {entry!r}")
            return name
        if not hasattr(entry, "name") or not callable(getattr(entry, "assign", None)):
            raise TypeError(f"{entry!r} is no assignor")
        return entry

    def parse(self, text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]


def literal(*words: str) -> str:
    """Return the annotation of a value that is one of these words."""
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"Literal[{quoted}]"


def _top_package(entry: Any) -> str:
    """Return the top package of the class of an object."""
    cls = entry if isinstance(entry, type) else type(entry)
    return cls.__module__.partition(".")[0]


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError("not a list")
    return tuple(value)
