"""Names and settings of topics: Kafka's names and defaults, valid values, and their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.broker.configs._config_types import ConfigType, is_valid
from kohort.types import NamedTuple

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_name(name: str) -> bool:
    return name not in (".", "..") and _LEGAL_NAME.fullmatch(name) is not None


class TopicSetting(NamedTuple):
    """A setting of topics.

    ``synonym``: the broker's config that applies to a topic without a value, if any.
    """

    default: str
    type: ConfigType
    minimum: float | None
    synonym: str | None


_FOREVER = "9223372036854775807"
_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

TOPIC_SETTINGS: dict[str, TopicSetting] = {
    name: TopicSetting(default, kind, minimum, synonym)
    for name, default, kind, minimum, synonym in (
        ("cleanup.policy", "delete", _LIST, None, "log.cleanup.policy"),
        ("compression.gzip.level", "-1", _I, -1, "compression.gzip.level"),
        ("compression.lz4.level", "9", _I, 1, "compression.lz4.level"),
        ("compression.type", "producer", _S, None, "compression.type"),
        ("compression.zstd.level", "3", _I, -131072, "compression.zstd.level"),
        ("delete.retention.ms", "86400000", _L, 0, "log.cleaner.delete.retention.ms"),
        ("errors.deadletterqueue.group.enable", "false", _B, None, None),
        ("file.delete.delay.ms", "60000", _L, 0, "log.segment.delete.delay.ms"),
        ("flush.messages", _FOREVER, _L, 1, "log.flush.interval.messages"),
        ("flush.ms", _FOREVER, _L, 0, "log.flush.interval.ms"),
        ("follower.replication.throttled.replicas", "", _LIST, None, None),
        ("index.interval.bytes", "4096", _I, 0, "log.index.interval.bytes"),
        ("leader.replication.throttled.replicas", "", _LIST, None, None),
        ("local.retention.bytes", "-2", _L, -2, "log.local.retention.bytes"),
        ("local.retention.ms", "-2", _L, -2, "log.local.retention.ms"),
        ("max.compaction.lag.ms", _FOREVER, _L, 1, "log.cleaner.max.compaction.lag.ms"),
        (
            "max.decompressed.message.bytes",
            "2147483639",
            _I,
            1,
            "max.decompressed.message.bytes",
        ),
        ("max.message.bytes", "1048588", _I, 0, "message.max.bytes"),
        ("message.timestamp.after.max.ms", "3600000", _L, 0, "log.message.timestamp.after.max.ms"),
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
        ("min.insync.replicas", "1", _I, 1, "min.insync.replicas"),
        ("preallocate", "false", _B, None, "log.preallocate"),
        ("remote.copy.lag.bytes", "-1", _L, -1, "log.remote.copy.lag.bytes"),
        ("remote.copy.lag.ms", "0", _L, -1, "log.remote.copy.lag.ms"),
        ("remote.log.copy.disable", "false", _B, None, None),
        ("remote.log.delete.on.disable", "false", _B, None, None),
        ("remote.storage.enable", "false", _B, None, None),
        ("retention.bytes", "-1", _L, None, "log.retention.bytes"),
        ("retention.ms", "604800000", _L, -1, "log.retention.ms"),
        ("segment.bytes", "1073741824", _I, 1 << 20, "log.segment.bytes"),
        ("segment.index.bytes", "10485760", _I, 4, "log.index.size.max.bytes"),
        ("segment.jitter.ms", "0", _L, 0, "log.roll.jitter.ms"),
        ("segment.ms", "604800000", _L, 1, "log.roll.ms"),
        ("unclean.leader.election.enable", "false", _B, None, "unclean.leader.election.enable"),
    )
}

_CHOICES = {
    "cleanup.policy": frozenset({"delete", "compact"}),
    "compression.type": frozenset({"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}),
    "message.timestamp.type": frozenset({"CreateTime", "LogAppendTime"}),
}
TOPIC_DEFAULTS: Mapping[str, str] = {
    name: setting.default for name, setting in TOPIC_SETTINGS.items()
}
"""Values of a topic that is in no cluster."""


def config_error(name: str, value: str | None) -> str | None:
    """Return the reason why a topic's setting is not valid, None for a valid one."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    valid = is_valid(setting.type, value, setting.minimum, choices=_CHOICES.get(name))
    return None if valid else f"Invalid value {value!r} for {name}"
