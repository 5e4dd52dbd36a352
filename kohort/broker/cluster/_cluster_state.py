"""State of a cluster: topics, leaders, and the parts that all of its brokers share."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Mapping, Sequence

import anyio

from kohort.broker._broker_node import BrokerNode, RunningBroker
from kohort.broker._hashes import coordinator_partition
from kohort.broker.cluster._cleaner import Cleaner
from kohort.broker.cluster._controller import Controller
from kohort.broker.cluster._coordinated_topic import CoordinatedTopic
from kohort.broker.cluster._group_topics import GroupTopics
from kohort.broker.cluster._registry import BrokerRegistry
from kohort.broker.cluster._share_router import ShareRouter
from kohort.broker.cluster._topics import (
    CONSUMER_OFFSETS,
    SHARE_STATE,
    TRANSACTION_STATE,
    Lag,
    Partition,
    Topic,
    Topics,
)
from kohort.broker.cluster._transaction_router import TransactionRouter, stored_records
from kohort.broker.configs._broker_configs import BrokerConfigs
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.configs._given_configs import OFFSETS_FACTOR
from kohort.broker.groups import (
    PARTITIONS,
    AnyGroup,
    GroupCoordinator,
    GroupEnvironment,
    GroupRecords,
    ShareGroup,
)
from kohort.broker.security import Authorizer, SecurityState
from kohort.errors import IllegalStateError

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ClusterState:
    """State of a cluster and the changes that requests make, used in one event loop.

    The cluster's time is that of the event loop. ``brokers`` are the running ones by id; their
    owner starts and stops them. ``changed`` is called after each change that an observer may wait
    for. ``started_ms`` replaces the present wall-clock time.
    """

    def __init__(
        self,
        config: ClusterConfig,
        brokers: Mapping[int, RunningBroker],
        changed: Callable[[], None],
        started_ms: int | None = None,
    ) -> None:
        self.config = config
        self.brokers = brokers
        self.changed = changed
        self.rng: random.Random = random.Random(config.seed)
        self._epoch_ms = (int(time.time() * 1000) if started_ms is None else started_ms) - int(
            anyio.current_time() * 1000
        )
        self.cluster_id: str = _base64_id(self.rng)
        self.authorizer: Authorizer | None = config.security.make_authorizer()
        self._group_topic = CoordinatedTopic(self, self._offsets_topic)
        self.transaction_router: TransactionRouter = TransactionRouter(self)
        self.share_router: ShareRouter = ShareRouter(self)
        host = config.advertised_host or _ANY_ADDRESS.get(config.host, config.host)
        racks: Sequence[str | None] = config.racks or [None] * config.brokers
        self.all_nodes: list[BrokerNode] = [
            BrokerNode(
                config.first_node_id + index,
                host,
                {listener.name: 0 for listener in config.listeners},
                rack,
            )
            for index, rack in enumerate(racks)
        ]
        hosts = list(dict.fromkeys((host, config.host)))
        self.security: SecurityState = SecurityState(
            config.security, hosts, config.seed or 0, self.now_ms
        )
        self.registry: BrokerRegistry = BrokerRegistry(config.broker_session_timeout_ms)
        ids = {node.id: node.rack for node in self.all_nodes}
        self.configs: BrokerConfigs = BrokerConfigs(config)
        defaults = self.configs.topic_defaults
        self.topics: Topics = Topics(ids, self.rng, self._on_leader_changed, self.is_live, defaults)
        self.controller: Controller = Controller(self.topics.partitions, self.is_live)
        interval_ms = config.log_retention_check_interval_ms
        self.cleaner: Cleaner = Cleaner(
            self.topics, interval_ms, self.now_ms, lambda: self.changed()
        )

    def is_live(self, node_id: int) -> bool:
        """True if the broker may lead: it runs and is registered."""
        return node_id in self.registry and node_id in self.brokers

    def move_leader(self, partition: Partition, node_id: int | None) -> int:
        """Make the named or the next live replica the leader, and return its id."""
        live = [replica for replica in partition.replicas if self.is_live(replica)]
        if node_id is None:
            eligible = [replica for replica in live if replica in partition.isr]
            after = eligible.index(partition.leader) + 1 if partition.leader in eligible else 0
            node_id = eligible[after % len(eligible)] if eligible else -1
        if node_id not in live:
            partition_name = f"{partition.topic.name}-{partition.index}"
            raise IllegalStateError(
                f"broker {node_id} cannot lead {partition_name}: it is not a live replica. "
                f"Choose one of {live}"
            )
        self.controller.set_leader(partition, node_id)
        self.changed()
        return node_id

    def start_lag(self, partition: Partition, node_id: int, *, in_sync: bool) -> Callable[[], None]:
        """Let a follower fall behind, and return the function that lets it catch up."""
        if node_id not in partition.replicas or node_id == partition.leader:
            partition_name = f"{partition.topic.name}-{partition.index}"
            raise IllegalStateError(
                f"broker {node_id} does not follow {partition_name}: its replicas are "
                f"{partition.replicas} and broker {partition.leader} leads"
            )
        have = partition.replica(node_id)
        lag = Lag(have.high_watermark, None if in_sync else have.end_offset)
        self.controller.set_lag(partition, node_id, lag)
        self.changed()

        def catch_up() -> None:
            if partition.lags.get(node_id) is lag:
                self.controller.set_lag(partition, node_id, None)
                self.changed()

        return catch_up

    def now_ms(self) -> int:
        """Return wall-clock milliseconds that advance with the event loop's clock."""
        return self._epoch_ms + int(anyio.current_time() * 1000)

    # Properties

    @property
    def nodes(self) -> list[BrokerNode]:
        """The registered brokers, which requests of clients can discover."""
        return [node for node in self.all_nodes if node.id in self.registry]

    def make_group_coordinator(self, node: BrokerNode) -> GroupCoordinator:
        """Return the group coordinator of a broker, which stores its records in this cluster."""
        topics = GroupTopics(self.topics, {node.id: node.rack for node in self.all_nodes})
        env = GroupEnvironment(
            self.config.groups,
            self.rng,
            self._epoch_ms,
            topics,
            settings_of=lambda group_id: self.configs.groups.limits_of(group_id, node),
            share_states=self.share_router,
        )
        return GroupCoordinator(env, self._append_group_records, lambda: self.changed())

    def offline_replicas(self, partition: Partition) -> list[int]:
        """Return the replicas whose brokers are not registered."""
        return [replica for replica in partition.replicas if replica not in self.registry]

    @property
    def controller_id(self) -> int:
        return self.registry.controller_id

    def time(self) -> float:
        """Return seconds of the event loop's clock."""
        return anyio.current_time()

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic with the cluster's defaults for omitted values; the name is free and
        legal.
        """
        if name == CONSUMER_OFFSETS:
            return self._offsets_topic()
        if name == TRANSACTION_STATE:
            return self.transaction_router.state_topic()
        if name == SHARE_STATE:
            return self.share_router.state_topic()
        topic = self.topics.create(
            name,
            self.config.default_partitions if partitions is None else partitions,
            replication_factor or self.config.default_replication_factor,
            configs or {},
            assignments,
        )
        self.cleaner.settings_changed()
        self.changed()
        return topic

    def add_partitions(
        self, topic: Topic, total: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.topics.add_partitions(topic, total, assignments)
        self.changed()

    def settings_changed(self) -> None:
        """Notify the parts that use the settings of topics or brokers."""
        self.cleaner.settings_changed()
        self.changed()

    def delete_topic(self, topic: Topic) -> None:
        self.topics.delete(topic)
        for broker in self.brokers.values():
            broker.coordinator.delete_topic_offsets(topic.name, topic.id)
        self.share_router.on_topic_deleted(topic)
        self.changed()

    def _on_leader_changed(self, partition: Partition) -> None:
        """Move groups and transactions to the new leader of the partition that stores them."""
        if partition.topic.name == TRANSACTION_STATE:
            self.transaction_router.on_leader_changed(partition)
        if partition.topic.name == SHARE_STATE:
            self.share_router.on_leader_changed(partition)
        if partition.topic.name == CONSUMER_OFFSETS:
            self._group_topic.move(
                partition,
                lambda broker: broker.coordinator,
                lambda new: new.load(partition.index, *stored_records(partition.log)),
            )

    # Groups

    def _offsets_topic(self) -> Topic:
        """Return ``__consumer_offsets``, which is created on the first use of a group."""
        return self.internal_topic(CONSUMER_OFFSETS, PARTITIONS, OFFSETS_FACTOR, "producer")

    def internal_topic(
        self, name: str, partitions: int, factor_config: str, compression: str
    ) -> Topic:
        """Return a topic of the cluster's own state, and create it on its first use."""
        topic = self.topics.get(name)
        if topic is None:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": compression,
                "segment.bytes": "104857600",
            }
            factor = self.config.replication_factor_of(factor_config)
            topic = self.topics.create(name, partitions, factor, configs)
        return topic

    def group(self, group_id: str) -> AnyGroup | None:
        """Return the group from any broker, None if it does not exist."""
        found = (broker.coordinator.groups.get(group_id) for broker in self.brokers.values())
        return next((group for group in found if group is not None), None)

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Return the share group from any broker, None if it does not exist."""
        found = (broker.coordinator.share_groups.get(group_id) for broker in self.brokers.values())
        return next((group for group in found if group is not None), None)

    def coordinator_node(self, group_id: str) -> BrokerNode | None:
        """Return the broker that coordinates the group, None if there is none now."""
        return self._group_topic.node(coordinator_partition(group_id, PARTITIONS))

    def group_partition(self, group_id: str) -> Partition:
        """Return the partition of ``__consumer_offsets`` whose leader coordinates the group."""
        return self._group_topic.partition(coordinator_partition(group_id, PARTITIONS))

    def _append_group_records(self, index: int, records: GroupRecords) -> None:
        self._group_topic.append(index, records)


def _base64_id(rng: random.Random) -> str:
    """Return 22 random characters, the format of Kafka's ids."""
    raw = rng.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
