"""Types and sources of configs, and the check of a value by its type."""

from __future__ import annotations

from enum import IntEnum

from kohort.types import NamedTuple


class ConfigType(IntEnum):
    """Types of configs, by their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Sources of a value, by their numbers in DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    """Value that a request has set for one broker."""
    DEFAULT_BROKER = 3
    """Value that a request has set for all brokers."""
    STATIC_BROKER = 4
    """Value in the file that a broker starts with."""
    DEFAULT = 5
    GROUP = 8


class SourcedValue(NamedTuple):
    """A value, its source, and the name it has there; ``value`` is None if it is hidden."""

    name: str
    value: str | None
    source: ConfigSource


_BITS = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}


def is_valid(
    kind: ConfigType,
    value: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: frozenset[str] | None = None,
) -> bool:
    """True if ``value`` fits the type, the bounds and the choices."""
    if choices is not None:
        return choices.issuperset(split_list(value) if kind is ConfigType.LIST else [value])
    if kind is ConfigType.BOOLEAN:
        return value.lower() in ("true", "false")
    number: float
    try:
        if kind in _BITS:
            number = int(value)
            if not -1 << _BITS[kind] <= number < 1 << _BITS[kind]:
                return False
        elif kind is ConfigType.DOUBLE:
            number = float(value)
        else:
            return True
    except ValueError:
        return False
    return (minimum is None or number >= minimum) and (maximum is None or number <= maximum)


def split_list(value: str) -> list[str]:
    """Split a value of type list into its items."""
    return [item.strip() for item in value.split(",") if item.strip()]


def typed_value(kind: ConfigType, text: str) -> object:
    """Return the value of a config in the type of its attribute."""
    if kind is ConfigType.BOOLEAN:
        return text.lower() == "true"
    if kind is ConfigType.LIST:
        return tuple(split_list(text))
    return text if kind is ConfigType.STRING else int(text)
