"""Settings of the cluster, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.broker.configs._topic_settings import is_legal_name
from kohort.broker.groups import BOUNDED_LIMITS, GroupLimits
from kohort.broker.security import PLAINTEXT_ONLY, Listener, Security
from kohort.broker.transactions import TransactionConfig
from kohort.errors import InvalidOptionError

MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes."""

LAST_PORT = 65_535
MAX_PARTITIONS = 10_000
"""Most partitions of one topic; Kafka's controller has this limit for one request."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Settings of a cluster, as :class:`Cluster` and :class:`MemoryCluster` take them.

    ``ports`` has one port for each broker, or the first broker's port. None takes free ports.
    """

    brokers: int = 1
    topics: Mapping[str, int | None] = field(default_factory=dict)
    """Topic -> partitions; None is the default number."""
    default_partitions: int = 1
    auto_create_topics: bool = True
    host: str = "127.0.0.1"
    ports: Sequence[int] | int | None = None
    advertised_host: str | None = None
    replication_factor: int | None = None
    max_request_bytes: int = MAX_REQUEST_BYTES
    broker_session_timeout_ms: int = 500
    log_retention_check_interval_ms: int = 300_000
    racks: Sequence[str] | None = None
    seed: int | None = None
    """Random seed. None repeats the choices of faults, but not the ids."""
    first_node_id: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    """Broker configs as they were given, by Kafka's names."""
    groups: GroupLimits = field(default_factory=GroupLimits)
    group_version: int = 1
    """Level of the feature group.version. With 0, the consumer protocol is off."""
    share_version: int = 2
    """Level of the feature share.version. 0: no share groups. 1: no dead letters of them."""
    share_release_wakes: bool = False
    """True to let released records end the wait of a fetch, unlike Kafka."""
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    security: Security = PLAINTEXT_ONLY

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners that every broker has."""
        return self.security.all_listeners

    @property
    def serves_consumer_groups(self) -> bool:
        """True if members may use the consumer protocol."""
        return self.group_version >= 1 and "consumer" in self.groups.rebalance_protocols

    @property
    def default_replication_factor(self) -> int:
        return self.replication_factor or min(3, self.brokers)

    def replication_factor_of(self, name: str) -> int:
        """Return the replicas of an internal topic by a config's name, at most one on a broker."""
        given = self.configs.get(name)
        return min(int(given), self.brokers) if given else self.default_replication_factor

    def index_of(self, node_id: int) -> int:
        """Return the index of a broker among all brokers, from 0 on."""
        return node_id - self.first_node_id

    def validate(self) -> None:
        """Raise InvalidOptionError for settings that contradict each other or are out of range."""
        if self.brokers < 1:
            raise InvalidOptionError(f"brokers={self.brokers}: a cluster has at least one broker")
        if self.transactions.version not in (0, 1, 2):
            raise InvalidOptionError(
                f"transaction_version={self.transactions.version}: must be 0, 1 or 2"
            )
        if self.group_version not in (0, 1):
            raise InvalidOptionError(f"group_version={self.group_version}: must be 0 or 1")
        if self.share_version not in (0, 1, 2):
            raise InvalidOptionError(f"share_version={self.share_version}: must be 0, 1 or 2")
        if isinstance(self.ports, Sequence) and len(self.ports) != self.brokers:
            raise InvalidOptionError(
                f"ports={self.ports!r}: must have one port for each of {self.brokers} brokers"
            )
        if self.racks is not None and len(self.racks) != self.brokers:
            raise InvalidOptionError(
                f"racks={self.racks!r}: {self.brokers} brokers need one rack each"
            )
        if not 1 <= self.default_replication_factor <= self.brokers:
            raise InvalidOptionError(
                f"replication_factor={self.replication_factor}: must be 1 to {self.brokers}, "
                "the number of brokers"
            )
        self._check_ports()
        self.groups.validate()
        for name, partitions in self.topics.items():
            if not is_legal_name(name):
                raise InvalidOptionError(
                    f"topics: {name!r} is not a legal name. Use 1 to 249 of A-Z a-z 0-9 . _ -"
                )
            if partitions is not None:
                _check_partitions(f"topic {name!r}", partitions)
        _check_partitions("default_partitions", self.default_partitions)

    def _check_ports(self) -> None:
        ports = [
            self.port_of(index, listener)
            for index in range(self.brokers)
            for listener in self.listeners
        ]
        given = [port for port in ports if port]
        if len(set(given)) < len(given):
            raise InvalidOptionError(f"ports={given!r}: two listeners have the same port")
        last = max(ports, default=0)
        if last > LAST_PORT:
            raise InvalidOptionError(
                f"ports={self.ports!r}: {self.brokers} brokers would need port {last}, but the "
                f"last port is {LAST_PORT}"
            )

    def port_of(self, index: int, listener: Listener) -> int:
        """Return the port of a listener of the broker with this index, 0 for any free port."""
        if listener.port:
            return listener.port + index
        if self.ports is None or listener is not self.listeners[0]:
            return 0
        if isinstance(self.ports, int):
            return self.ports + index if self.ports else 0
        return self.ports[index]


def _check_partitions(what: str, count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidOptionError(f"{what}: {count} partitions, must be 1 to {MAX_PARTITIONS}")


def group_limits(settings: Mapping[str, Any] | None, **options: int | None) -> GroupLimits:
    """Return the group settings for the arguments of a cluster.

    ``options`` that are not None override ``settings``. The bounds of the settings of groups
    include the given values, as if the broker had been started with such bounds.
    """
    given = {**(settings or {})}
    given |= {name: value for name, value in options.items() if value is not None}
    limits = GroupLimits(**given)
    for name in BOUNDED_LIMITS:
        low, high = limits.bounds_of(name)
        value = getattr(limits, f"consumer_{name}")
        given.setdefault(f"consumer_min_{name}", min(low, value))
        given.setdefault(f"consumer_max_{name}", max(high, value))
    return GroupLimits(**given)
