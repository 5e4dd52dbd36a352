"""Broker configs of a test or a command line, checked and applied to the cluster's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kohort.broker.configs._broker_settings import FALLBACKS, broker_settings, nearest_setting
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.configs._config_types import typed_value
from kohort.broker.configs._topic_settings import TOPIC_SETTINGS
from kohort.errors import InvalidOptionError

RESERVED = {
    "advertised.listeners": "host, ports and advertised_host",
    "broker.id": "node.id",
    "broker.rack": "racks",
    "controller.listener.names": "the cluster itself",
    "controller.quorum.bootstrap.servers": "the cluster itself",
    "controller.quorum.voters": "the cluster itself",
    "inter.broker.listener.name": "the cluster itself",
    "listener.security.protocol.map": "the cluster itself",
    "listeners": "host and ports",
    "log.dir": "the cluster itself",
    "log.dirs": "the cluster itself",
    "process.roles": "the cluster itself",
}
"""Configs that cannot be given -> what sets them."""

OFFSETS_FACTOR = "offsets.topic.replication.factor"
TRANSACTIONS_FACTOR = "transaction.state.log.replication.factor"
SHARE_FACTOR = "share.coordinator.state.topic.replication.factor"
SHARE_UPDATES = "share.coordinator.snapshot.update.records.per.snapshot"
SHARE_PARTITIONS = "share.coordinator.state.topic.num.partitions"
_FACTORS = (OFFSETS_FACTOR, TRANSACTIONS_FACTOR, SHARE_FACTOR)

_CLUSTER = {
    "auto.create.topics.enable": "auto_create_topics",
    "broker.session.timeout.ms": "broker_session_timeout_ms",
    "default.replication.factor": "replication_factor",
    "log.retention.check.interval.ms": "log_retention_check_interval_ms",
    "node.id": "first_node_id",
    "num.partitions": "default_partitions",
    "socket.request.max.bytes": "max_request_bytes",
}
_GROUPS = {
    "group.consumer.assignment.interval.ms": "consumer_assignment_interval_ms",
    "group.consumer.assignors": "consumer_assignors",
    "group.consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
    "group.consumer.max.assignment.interval.ms": "consumer_max_assignment_interval_ms",
    "group.consumer.max.heartbeat.interval.ms": "consumer_max_heartbeat_interval_ms",
    "group.consumer.max.session.timeout.ms": "consumer_max_session_timeout_ms",
    "group.consumer.max.size": "consumer_max_size",
    "group.consumer.migration.policy": "consumer_migration_policy",
    "group.consumer.min.assignment.interval.ms": "consumer_min_assignment_interval_ms",
    "group.consumer.min.heartbeat.interval.ms": "consumer_min_heartbeat_interval_ms",
    "group.consumer.min.session.timeout.ms": "consumer_min_session_timeout_ms",
    "group.consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "group.coordinator.rebalance.protocols": "rebalance_protocols",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.max.size": "max_size",
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.share.assignment.interval.ms": "share_assignment_interval_ms",
    "group.share.delivery.count.limit": "share_delivery_count_limit",
    "group.share.heartbeat.interval.ms": "share_heartbeat_interval_ms",
    "group.share.max.share.sessions": "share_max_share_sessions",
    "group.share.max.size": "share_max_size",
    "group.share.partition.max.record.locks": "share_partition_max_record_locks",
    "group.share.record.lock.duration.ms": "share_record_lock_duration_ms",
    "group.share.session.timeout.ms": "share_session_timeout_ms",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
    "offsets.retention.minutes": "offsets_retention_minutes",
}
_TRANSACTIONS = {"transaction.max.timeout.ms": "max_timeout_ms"}
_OWN_DEFAULTS = {
    # Tests write records of any age. The broker must accept and keep them.
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    "log.retention.ms": "-1",
}


def effective_configs() -> frozenset[str]:
    """Return the names of the configs that affect the cluster. Others are only shown."""
    topics = {setting.synonym for setting in TOPIC_SETTINGS.values() if setting.synonym}
    fallbacks = {fallback for name in topics for fallback, _ in FALLBACKS.get(name, ())}
    return frozenset(
        {*_CLUSTER, *_GROUPS, *_TRANSACTIONS, *topics, *fallbacks}
        | {*_FACTORS, SHARE_UPDATES, SHARE_PARTITIONS}
    )


def with_configs(
    config: ClusterConfig, configs: Mapping[str, object] | None, **defaults: object
) -> ClusterConfig:
    """Return ``config`` with broker configs in it, by Kafka's names.

    ``defaults``: parameters whose default is not that of :class:`ClusterConfig`.

    InvalidOptionError for a name that is unknown, reserved, or given as a parameter with another
    value. It is also raised for a value that does not have the config's type.
    """
    given = {name: _checked(name, value) for name, value in (configs or {}).items()}
    return replace(
        config,
        configs=given,
        groups=_changed(config.groups, _GROUPS, given),
        transactions=_changed(config.transactions, _TRANSACTIONS, given),
        **_values(config, _CLUSTER, given, defaults),
    )


def static_configs(config: ClusterConfig) -> dict[str, str]:
    """Return the configs that differ from Kafka's defaults or were given, by Kafka's names."""
    own = dict(_OWN_DEFAULTS)
    if any(name in config.configs for name, _ in FALLBACKS["log.retention.ms"]):
        del own["log.retention.ms"]
    static = {**own, **config.configs}
    for holder, names in (
        (config, _CLUSTER),
        (config.groups, _GROUPS),
        (config.transactions, _TRANSACTIONS),
    ):
        for name, attribute in names.items():
            value = getattr(holder, attribute)
            if attribute == "replication_factor":
                value = config.default_replication_factor
            text = _text(value)
            if text != broker_settings()[name].default:
                static[name] = text
    for name in _FACTORS:
        factor = str(config.replication_factor_of(name))
        if name in config.configs or factor != broker_settings()[name].default:
            static[name] = factor
    return static


def _text(value: object) -> str:
    """Return a value as text in a file of broker configs."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value).strip()


def _checked(name: str, value: object) -> str:
    setting = broker_settings().get(name)
    if setting is None:
        near = nearest_setting(name)
        hint = f": did you mean {near}?" if near else ""
        raise InvalidOptionError(f"configs: brokers have no config {name!r}{hint}")
    if name in RESERVED:
        raise InvalidOptionError(
            f"configs: {name} cannot be given, because it is set by {RESERVED[name]}"
        )
    text = _text(value)
    if (problem := setting.problem(text)) is not None:
        raise InvalidOptionError(f"configs: {problem}")
    return text


def _changed(settings: Any, names: Mapping[str, str], given: Mapping[str, str]) -> Any:
    return replace(settings, **_values(settings, names, given))


def _values(
    settings: Any,
    names: Mapping[str, str],
    given: Mapping[str, str],
    own_defaults: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return the attributes that the given configs set, with their values."""
    defaults = {field.name: field.default for field in fields(settings)} | dict(own_defaults or {})
    values = {}
    for name, attribute in names.items():
        if name not in given:
            continue
        value = typed_value(broker_settings()[name].type, given[name])
        current = getattr(settings, attribute)
        if current not in (defaults[attribute], value):
            raise InvalidOptionError(
                f"configs: {name}={given[name]} contradicts {attribute}={current!r}"
            )
        values[attribute] = value
    return values
