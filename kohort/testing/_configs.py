"""Settings: the cluster's own, and those of topics with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kohort.errors import InvalidOptionError
from kohort.testing.groups import GroupConfig

MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes."""

MAX_PARTITIONS = 10_000
"""Of one topic; Kafka's controller has this limit for one request."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """``ports``: one a broker, or the first one's with the others behind it; None for free ones."""

    brokers: int = 1
    topics: Mapping[str, int] = field(default_factory=dict)
    default_partitions: int = 1
    auto_create_topics: bool = True
    host: str = "127.0.0.1"
    ports: Sequence[int] | int | None = None
    advertised_host: str | None = None
    replication_factor: int | None = None
    max_request_bytes: int = MAX_REQUEST_BYTES
    broker_session_timeout_ms: int = 0
    seed: int = 0
    groups: GroupConfig = field(default_factory=GroupConfig)

    @property
    def default_replication_factor(self) -> int:
        return self.replication_factor or min(3, self.brokers)

    def validate(self) -> None:
        """InvalidOptionError for what cannot be."""
        if self.brokers < 1:
            raise InvalidOptionError(f"brokers={self.brokers}: a cluster has at least one broker")
        if isinstance(self.ports, Sequence) and len(self.ports) != self.brokers:
            raise InvalidOptionError(
                f"ports={self.ports!r}: {self.brokers} broker(s) need one port each"
            )
        if not 1 <= self.default_replication_factor <= self.brokers:
            raise InvalidOptionError(
                f"replication_factor={self.replication_factor}: at most the number of brokers"
            )
        for name, partitions in {
            **self.topics,
            "default_partitions": self.default_partitions,
        }.items():
            if partitions < 1:
                raise InvalidOptionError(f"{name}: {partitions} partitions, must be at least 1")

    def port_of(self, index: int) -> int:
        """The port of the broker with this index, 0 for any that is free."""
        if self.ports is None:
            return 0
        if isinstance(self.ports, int):
            return self.ports + index if self.ports else 0
        return self.ports[index]


def group_config(settings: Mapping[str, int] | None, initial_delay_ms: int) -> GroupConfig:
    """The settings of groups out of what a test gives."""
    return GroupConfig(**{"initial_rebalance_delay_ms": initial_delay_ms, **(settings or {})})


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class TopicSetting(NamedTuple):
    default: str
    type: ConfigType


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
    name: TopicSetting(default, kind)
    for name, default, kind in (
        ("cleanup.policy", "delete", _LIST),
        ("compression.gzip.level", "-1", _I),
        ("compression.lz4.level", "9", _I),
        ("compression.type", "producer", _S),
        ("compression.zstd.level", "3", _I),
        ("delete.retention.ms", "86400000", _L),
        ("file.delete.delay.ms", "60000", _L),
        ("flush.messages", _FOREVER, _L),
        ("flush.ms", _FOREVER, _L),
        ("follower.replication.throttled.replicas", "", _LIST),
        ("index.interval.bytes", "4096", _I),
        ("leader.replication.throttled.replicas", "", _LIST),
        ("local.retention.bytes", "-2", _L),
        ("local.retention.ms", "-2", _L),
        ("max.compaction.lag.ms", _FOREVER, _L),
        ("max.message.bytes", "1048588", _I),
        ("message.timestamp.after.max.ms", _FOREVER, _L),
        ("message.timestamp.before.max.ms", _FOREVER, _L),
        ("message.timestamp.type", "CreateTime", _S),
        ("min.cleanable.dirty.ratio", "0.5", _D),
        ("min.compaction.lag.ms", "0", _L),
        ("min.insync.replicas", "1", _I),
        ("preallocate", "false", _B),
        ("remote.log.copy.disable", "false", _B),
        ("remote.log.delete.on.disable", "false", _B),
        ("remote.storage.enable", "false", _B),
        ("retention.bytes", "-1", _L),
        ("retention.ms", "-1", _L),
        ("segment.bytes", "1073741824", _I),
        ("segment.index.bytes", "10485760", _I),
        ("segment.jitter.ms", "0", _L),
        ("segment.ms", "604800000", _L),
        ("unclean.leader.election.enable", "false", _B),
    )
}
"""Kafka's names and defaults, but that nothing is deleted for its age and no timestamp refused."""

_CHOICES = {
    "cleanup.policy": {"delete", "compact"},
    "compression.type": {"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}


def config_error(name: str, value: str | None) -> str | None:
    """What is wrong with a topic's setting, None if nothing is."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    choices = _CHOICES.get(name)
    try:
        if setting.type in (ConfigType.INT, ConfigType.LONG):
            int(value)
        elif setting.type is ConfigType.DOUBLE:
            float(value)
        elif setting.type is ConfigType.BOOLEAN and value not in ("true", "false"):
            raise ValueError
        elif choices and not choices.issuperset(value.replace(" ", "").split(",")):
            raise ValueError
    except ValueError:
        return f"Invalid value {value} for configuration {name}"
    return None
