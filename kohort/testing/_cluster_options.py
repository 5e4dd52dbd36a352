"""Options of the clusters, as typed dictionaries, and the settings that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TypedDict, TypeVar, get_type_hints

from kohort.broker.configs._cluster_config import ClusterConfig, group_limits
from kohort.broker.configs._given_configs import with_configs
from kohort.broker.groups import BOUNDED_LIMITS, GroupLimits
from kohort.broker.security import Security
from kohort.broker.transactions import TransactionConfig
from kohort.errors import InvalidOptionError

F = TypeVar("F", bound=Callable[..., None])


class MemoryClusterOptions(TypedDict, total=False):
    """Options of :class:`MemoryCluster` besides brokers and topics."""

    default_partitions: int
    """Partitions of each topic that is created without a number. Default: 1."""
    auto_create_topics: bool
    """True to create unknown topics that clients use. Default: True."""
    replication_factor: int | None
    """Replicas of each partition. Default: at most 3, one on a broker."""
    racks: Sequence[str] | None
    """Rack of each broker. Clients with a rack then read from a replica of that rack (KIP-392)."""
    group_initial_rebalance_delay_ms: int
    """Kafka's config of that name. Default: 0. Kafka's default is 3,000."""
    group_settings: Mapping[str, int] | None
    """Limits of groups, such as ``{"min_session_timeout_ms": 500}``.

    The names are those of Kafka's configs with underscores, and without the prefix ``group.``.
    """
    max_request_bytes: int
    """Longest request. Default: 100 MiB."""
    broker_session_timeout_ms: int
    """Time between the kill of a broker and the election of new leaders for its partitions.

    Default: 500, and 0 in a MemoryCluster. Kafka's default is 9,000.
    """
    log_retention_check_interval_ms: int
    """Time between two deletions of the records that a topic's retention excludes.

    Default: 300,000.
    """
    group_version: int
    """1 serves the consumer protocol of KIP-848, 0 does not. Default: 1."""
    consumer_session_timeout_ms: int | None
    """Session timeout of members of the consumer protocol. Default: 45,000."""
    consumer_heartbeat_interval_ms: int | None
    """Heartbeat interval of members of the consumer protocol. Default: 5,000."""
    consumer_assignment_interval_ms: int | None
    """Time between two assignments of a group of the consumer protocol. Default: 1,000."""
    share_version: int
    """2 serves share groups, 1 those without dead letters, and 0 none. Default: 2."""
    share_lock_ms: int | None
    """Time of the lock on a record that a member of a share group has acquired. Default: 30,000."""
    share_release_wakes: bool
    """True to end the wait of a fetch when records are released, as Kafka does not.

    Default: False.
    """
    transaction_version: int
    """2 offers KIP-890 to producers, 0 and 1 do not. Default: 2."""
    configs: Mapping[str, object] | None
    """Broker configs by Kafka's names, such as ``{"group.min.session.timeout.ms": 500}``."""
    security: Security
    """Listeners, users and certificates. Default: one PLAINTEXT listener."""
    seed: int | None
    """Random seed. Without one, faults repeat their choices, and ids are new in each cluster.

    Default: None, and 0 in a MemoryCluster.
    """


class ClusterOptions(MemoryClusterOptions, total=False):
    """Options of :class:`Cluster` besides brokers and topics."""

    host: str
    """Address that the brokers listen on. Default: ``"127.0.0.1"``."""
    ports: Sequence[int] | int | None
    """Port of each broker, or the first broker's port. Default: free ports."""
    advertised_host: str | None
    """Address that clients connect to. Default: ``host``."""
    schema_registry: bool | int
    """True to serve a schema registry on a free port, or its port. Default: False."""


_CONSUMER_OPTIONS = tuple(f"consumer_{name}" for name in BOUNDED_LIMITS)
_LEAST_MS = {
    "consumer_session_timeout_ms": 1,
    "consumer_heartbeat_interval_ms": 1,
    "consumer_assignment_interval_ms": 0,
    "share_lock_ms": 1,
}
_TRANSLATED: dict[str, object] = {
    "group_initial_rebalance_delay_ms": GroupLimits().initial_rebalance_delay_ms,
    "group_settings": None,
    **dict.fromkeys(_CONSUMER_OPTIONS),
    "share_lock_ms": None,
    "transaction_version": TransactionConfig().version,
    "configs": None,
    "schema_registry": False,
}
"""Options that :class:`ClusterConfig` does not have by these names, with their defaults."""


def show_options(options: type, **defaults: object) -> Callable[[F], F]:
    """Return a decorator that lists each option in the signature of a constructor.

    ``help()`` and interactive shells show that signature. ``defaults`` are those that differ from
    the defaults of :class:`ClusterConfig`.
    """
    settings = {field.name: field.default for field in fields(ClusterConfig)}
    default_of = {**settings, **_TRANSLATED, **defaults}

    def decorate(constructor: F) -> F:
        positional = list(inspect.signature(constructor).parameters.values())[:-1]
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default_of[name], annotation=hint
            )
            for name, hint in get_type_hints(options).items()
        ]
        vars(constructor)["__signature__"] = inspect.Signature([*positional, *keywords])
        return constructor

    return decorate


def cluster_config(cluster: type, /, *arguments: object, **options: object) -> ClusterConfig:
    """Return the settings for the arguments of a cluster's constructor.

    InvalidOptionError for wrong values, TypeError for unknown options.
    """
    signature = inspect.signature(cluster)
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError as error:
        raise TypeError(f"{cluster.__name__}() {error}") from None
    bound.apply_defaults()
    settings = bound.arguments
    settings.pop("schema_registry", None)  # it is no part of the brokers
    for name, least in _LEAST_MS.items():
        value = settings[name]
        if value is not None and (type(value) is not int or value < least):
            raise InvalidOptionError(f"{name}={value!r}: must be a whole number from {least} on")
    topics, configs = settings.pop("topics"), settings.pop("configs")
    groups = group_limits(
        settings.pop("group_settings"),
        initial_rebalance_delay_ms=settings.pop("group_initial_rebalance_delay_ms"),
        share_record_lock_duration_ms=settings.pop("share_lock_ms"),
        **{name: settings.pop(name) for name in _CONSUMER_OPTIONS},
    )
    transactions = TransactionConfig(version=settings.pop("transaction_version"))
    config = ClusterConfig(
        topics=dict(topics or {}), groups=groups, transactions=transactions, **settings
    )
    timeout = "broker_session_timeout_ms"
    config = with_configs(config, configs, **{timeout: signature.parameters[timeout].default})
    config.validate()
    return config
