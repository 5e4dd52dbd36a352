"""Configs that a broker may have: type, default, valid values, and how they may change."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache

from kohort.broker.configs._broker_table import TABLE
from kohort.broker.configs._config_types import ConfigType, is_valid
from kohort.types import NamedTuple


class BrokerSetting(NamedTuple):
    """A config of brokers. ``default`` is None if there is no default.

    ``is_dynamic``: a request may change it. ``is_per_broker``: a request may change it for one
    broker, never for all of them.
    """

    name: str
    type: ConfigType
    default: str | None
    is_dynamic: bool = False
    is_per_broker: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: frozenset[str] | None = None

    @property
    def is_sensitive(self) -> bool:
        """True if the value is never shown."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def problem(self, value: str) -> str | None:
        """Return the reason why a value is not valid, None for a valid one."""
        if is_valid(self.type, value, self.minimum, self.maximum, self.choices):
            return None
        shown = "the value" if self.is_sensitive else repr(value)
        return f"{self.name}: {shown} is not {self._expected()}"

    def _expected(self) -> str:
        if self.choices is not None:
            return f"one of {', '.join(sorted(self.choices))}"
        kind = _IN_WORDS.get(self.type, f"of type {self.type.name.lower()}")
        if self.minimum is not None and self.maximum is not None:
            return f"{kind} from {_plain(self.minimum)} to {_plain(self.maximum)}"
        return kind if self.minimum is None else f"{kind} of at least {_plain(self.minimum)}"


def _plain(number: float) -> str:
    return str(int(number)) if number.is_integer() else str(number)


_IN_WORDS = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
}

QUOTAS = {
    name: BrokerSetting(name, ConfigType.LONG, None, is_dynamic=True, minimum=0)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""Configs that only a request sets. Brokers show them after that."""

HIDDEN = {
    name: BrokerSetting(name, ConfigType.INT, None)
    for name in ("group.consumer.regex.refresh.interval.ms",)
}
"""Configs of a broker's file that brokers do not show."""

FALLBACKS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Name -> (config, factor) pairs that apply while it is not set, in order of precedence.

The factor converts the value to the unit of the name.
"""


@cache
def broker_settings() -> Mapping[str, BrokerSetting]:
    """Return all configs that a broker's file may set, by name."""
    return {setting.name: setting for setting in map(_read, TABLE.splitlines())}


def _read(line: str) -> BrokerSetting:
    name, mode, kind, default, *valid = line.split()
    minimum = maximum = choices = None
    if valid and ".." in valid[0]:
        low, _, high = valid[0].partition("..")
        minimum, maximum = float(low), float(high) if high else None
    elif valid:
        choices = frozenset(valid[0].split("|"))
    return BrokerSetting(
        name,
        ConfigType[kind.upper()],
        {"-": None, '""': ""}.get(default, default),
        is_dynamic=mode != "r",
        is_per_broker=mode == "b",
        minimum=minimum,
        maximum=maximum,
        choices=choices,
    )


def nearest_setting(name: str) -> str | None:
    """Return the known name most similar to ``name``, None if no name is similar."""
    near = difflib.get_close_matches(name.replace("_", "."), broker_settings(), n=1, cutoff=0.6)
    return near[0] if near else None
