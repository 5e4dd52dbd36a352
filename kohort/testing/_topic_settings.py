"""The settings of topics: Kafka's names and defaults, what they may be, where they come from."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Who has set a value, as DescribeConfigs numbers them."""

    TOPIC = 1
    DEFAULT_BROKER = 3
    """Of all brokers, changed while they run."""
    STATIC_BROKER = 4
    """In the file that a broker starts with."""
    DEFAULT = 5


class SourcedValue(NamedTuple):
    """A value under the name that it has where it is set."""

    name: str
    value: str
    source: ConfigSource


class TopicSetting(NamedTuple):
    """``inherited``: where the value of a topic that has none comes from, the nearest first."""

    default: str
    type: ConfigType
    minimum: float | None
    inherited: tuple[SourcedValue, ...]

    @property
    def source(self) -> ConfigSource:
        """Of the value of a topic that has none of its own."""
        return self.inherited[0].source if self.inherited else ConfigSource.DEFAULT


_FOREVER = "9223372036854775807"
_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

_OWN_DEFAULTS = {
    # Nothing is deleted for its age here, and no timestamp is refused: as if a broker was told so.
    "retention.ms": (
        SourcedValue("log.retention.ms", "-1", ConfigSource.STATIC_BROKER),
        SourcedValue("log.retention.hours", "168", ConfigSource.DEFAULT),
    ),
    "message.timestamp.after.max.ms": (
        SourcedValue("log.message.timestamp.after.max.ms", _FOREVER, ConfigSource.STATIC_BROKER),
        SourcedValue("log.message.timestamp.after.max.ms", "3600000", ConfigSource.DEFAULT),
    ),
    "min.insync.replicas": (
        SourcedValue("min.insync.replicas", "1", ConfigSource.DEFAULT_BROKER),
        SourcedValue("min.insync.replicas", "1", ConfigSource.DEFAULT),
    ),
}


def _inherited(name: str, default: str, synonym: str | None) -> tuple[SourcedValue, ...]:
    if name in _OWN_DEFAULTS:
        return _OWN_DEFAULTS[name]
    return () if synonym is None else (SourcedValue(synonym, default, ConfigSource.DEFAULT),)


TOPIC_SETTINGS: dict[str, TopicSetting] = {
    name: TopicSetting(default, kind, minimum, _inherited(name, default, synonym))
    for name, default, kind, minimum, synonym in (
        ("cleanup.policy", "delete", _LIST, None, "log.cleanup.policy"),
        ("compression.gzip.level", "-1", _I, -1, "compression.gzip.level"),
        ("compression.lz4.level", "9", _I, 1, "compression.lz4.level"),
        ("compression.type", "producer", _S, None, "compression.type"),
        ("compression.zstd.level", "3", _I, -131072, "compression.zstd.level"),
        ("delete.retention.ms", "86400000", _L, 0, "log.cleaner.delete.retention.ms"),
        ("file.delete.delay.ms", "60000", _L, 0, "log.segment.delete.delay.ms"),
        ("flush.messages", _FOREVER, _L, 1, "log.flush.interval.messages"),
        ("flush.ms", _FOREVER, _L, 0, None),
        ("follower.replication.throttled.replicas", "", _LIST, None, None),
        ("index.interval.bytes", "4096", _I, 0, "log.index.interval.bytes"),
        ("leader.replication.throttled.replicas", "", _LIST, None, None),
        ("local.retention.bytes", "-2", _L, -2, "log.local.retention.bytes"),
        ("local.retention.ms", "-2", _L, -2, "log.local.retention.ms"),
        ("max.compaction.lag.ms", _FOREVER, _L, 1, "log.cleaner.max.compaction.lag.ms"),
        ("max.message.bytes", "1048588", _I, 0, "message.max.bytes"),
        ("message.timestamp.after.max.ms", _FOREVER, _L, 0, None),
        (
            "message.timestamp.before.max.ms",
            _FOREVER,
            _L,
            0,
            "log.message.timestamp.before.max.ms",
        ),
        ("message.timestamp.type", "CreateTime", _S, None, "log.message.timestamp.type"),
        ("min.cleanable.dirty.ratio", "0.5", _D, 0, "log.cleaner.min.cleanable.ratio"),
        ("min.compaction.lag.ms", "0", _L, 0, "log.cleaner.min.compaction.lag.ms"),
        ("min.insync.replicas", "1", _I, 1, None),
        ("preallocate", "false", _B, None, "log.preallocate"),
        ("remote.log.copy.disable", "false", _B, None, None),
        ("remote.log.delete.on.disable", "false", _B, None, None),
        ("remote.storage.enable", "false", _B, None, None),
        ("retention.bytes", "-1", _L, None, "log.retention.bytes"),
        ("retention.ms", "-1", _L, -1, None),
        ("segment.bytes", "1073741824", _I, 1 << 20, "log.segment.bytes"),
        ("segment.index.bytes", "10485760", _I, 4, "log.index.size.max.bytes"),
        ("segment.jitter.ms", "0", _L, 0, None),
        ("segment.ms", "604800000", _L, 1, None),
        ("unclean.leader.election.enable", "false", _B, None, "unclean.leader.election.enable"),
    )
}

_CHOICES = {
    "cleanup.policy": {"delete", "compact"},
    "compression.type": {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
_BITS = {ConfigType.INT: 31, ConfigType.LONG: 63}


def config_error(name: str, value: str | None) -> str | None:
    """What is wrong with a topic's setting, None if nothing is."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    return None if _is_sound(name, setting, value) else f"Invalid value {value!r} for {name}"


def _is_sound(name: str, setting: TopicSetting, value: str) -> bool:
    choices = _CHOICES.get(name)
    if choices is not None:
        several = split_list(value) if setting.type is ConfigType.LIST else [value]
        return choices.issuperset(several)
    if setting.type is ConfigType.BOOLEAN:
        return value in ("true", "false")
    number: float
    try:
        if setting.type in _BITS:
            number = int(value)
            if number >= 1 << _BITS[setting.type]:
                return False
        elif setting.type is ConfigType.DOUBLE:
            number = float(value)
        else:
            return True
    except ValueError:
        return False
    return setting.minimum is None or number >= setting.minimum


def split_list(value: str) -> list[str]:
    """The items of a setting that is a list."""
    return [item.strip() for item in value.split(",") if item.strip()]
