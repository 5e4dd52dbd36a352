"""Share groups across the cluster: the share coordinators, and the leaders of share-partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kohort.broker._broker_node import BrokerNode
from kohort.broker.cluster._coordinated_topic import CoordinatedCluster, CoordinatedTopic
from kohort.broker.cluster._share_letters import LetterCluster, ShareLetters
from kohort.broker.cluster._topics import SHARE_STATE, Partition, Topic
from kohort.broker.cluster._transaction_router import stored_records
from kohort.broker.configs._given_configs import SHARE_FACTOR, SHARE_PARTITIONS, SHARE_UPDATES
from kohort.broker.share import (
    NO_OFFSET,
    STATE_PARTITIONS,
    LedLog,
    Letter,
    ShareCoordinator,
    ShareCoordinatorEnvironment,
    ShareKey,
    ShareLeader,
    SharePartition,
    ShareSettings,
    ShareState,
    StateBatch,
    duration_ms,
    state_partition,
)
from kohort.errors import ErrorCode
from kohort.types import TopicPartition

_READ_COMMITTED = "read_committed"


class ShareCluster(CoordinatedCluster, LetterCluster, Protocol):
    """Parts of the cluster's state that share groups use."""


class ShareRouter:
    """Calls between brokers for share groups, which replace Kafka's requests between brokers."""

    def __init__(self, cluster: ShareCluster) -> None:
        self._cluster = cluster
        given = cluster.config.configs
        self.partition_count: int = int(given.get(SHARE_PARTITIONS, STATE_PARTITIONS))
        self.letters: ShareLetters = ShareLetters(cluster)
        self._coordinated = CoordinatedTopic(cluster, self.state_topic)

    def make_coordinator(self) -> ShareCoordinator:
        """Return the share coordinator of a broker, which stores its records in this cluster."""
        updates = int(self._cluster.config.configs.get(SHARE_UPDATES, 500))
        return ShareCoordinator(
            ShareCoordinatorEnvironment(
                self._coordinated.append, self._cluster.now_ms, updates, self.partition_count
            )
        )

    def make_leader(self, node: BrokerNode) -> ShareLeader:
        """Return the share-partitions of a broker."""
        config = self._cluster.config
        return ShareLeader(
            _BrokerView(self._cluster, self, node),
            config.groups.share_max_share_sessions,
            release_wakes=config.share_release_wakes,
        )

    # The share coordinators

    def state_topic(self) -> Topic:
        """Return ``__share_group_state``, which is created on the first use of a share group."""
        topic = self._cluster.topics.get(SHARE_STATE)
        if topic is None:
            configs = {
                "cleanup.policy": "delete",
                "compression.type": "none",
                "retention.ms": "-1",
                "segment.bytes": "104857600",
            }
            factor = self._cluster.config.replication_factor_of(SHARE_FACTOR)
            topic = self._cluster.topics.create(SHARE_STATE, self.partition_count, factor, configs)
        return topic

    def coordinator_node(self, key: ShareKey) -> BrokerNode | None:
        """Return the broker that coordinates a share-partition, None if there is none now."""
        return self._coordinated.node(state_partition(key, self.partition_count))

    def coordinator(self, key: ShareKey) -> ShareCoordinator | None:
        """Return the coordinator of a share-partition, None if its broker does not run."""
        broker = self._coordinated.broker(state_partition(key, self.partition_count))
        return None if broker is None else broker.share_coordinator

    def on_leader_changed(self, partition: Partition) -> None:
        """Move states to the new leader of the partition that stores them."""
        self._coordinated.move(
            partition,
            lambda broker: broker.share_coordinator,
            lambda new: new.load(partition.index, stored_records(partition.log)[0]),
        )

    def on_topic_deleted(self, topic: Topic) -> None:
        """Delete the states of a topic that was deleted."""
        for broker in self._cluster.brokers.values():
            coordinator = broker.share_coordinator
            for key in [key for key in coordinator.states if key.topic_id == topic.id]:
                coordinator.delete(key)

    # What tests see and change

    def machines(self, group_id: str) -> dict[TopicPartition, SharePartition]:
        """Return the share-partitions of a group as leaders have them, or else as stored."""
        machines: dict[ShareKey, SharePartition] = {}
        for broker in self._cluster.brokers.values():
            for key, state in broker.share_coordinator.states.items():
                if key.group_id == group_id and state.start != NO_OFFSET:
                    machines[key] = SharePartition(state.start, state.batches)
        for broker in self._cluster.brokers.values():
            machines |= broker.share_leader.machines(group_id)
        found: dict[TopicPartition, SharePartition] = {}
        for key, machine in machines.items():
            topic = self._cluster.topics.by_id(key.topic_id)
            if topic is not None:
                found[TopicPartition(topic.name, key.partition)] = machine
        return dict(sorted(found.items()))

    def expire_locks(self, group_id: str) -> None:
        """End all locks of a group."""
        for broker in self._cluster.brokers.values():
            broker.share_leader.expire_group(group_id)
        self._cluster.changed()

    # The group coordinators' calls

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, epoch: int, start: int
    ) -> ErrorCode:
        """Store the state of a share-partition, and let fetches that wait for it look again."""
        key = ShareKey(group_id, topic_id, partition)
        coordinator = self.coordinator(key)
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = coordinator.initialize(key, epoch, start)
        for broker in self._cluster.brokers.values():
            broker.share_leader.wake(key)
        return error

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        """Delete the state of a share-partition if there is one."""
        key = ShareKey(group_id, topic_id, partition)
        coordinator = self.coordinator(key)
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE if coordinator is None else coordinator.delete(key)
        )


class _BrokerView:
    """What the share-partitions of one broker need of the cluster."""

    def __init__(self, cluster: ShareCluster, router: ShareRouter, node: BrokerNode) -> None:
        self._cluster = cluster
        self._router = router
        self._node = node

    def settings(self, group_id: str) -> ShareSettings:
        limits = self._cluster.configs.groups.limits_of(group_id, self._node)
        return ShareSettings(
            lock_ms=limits.share_record_lock_duration_ms,
            delivery_limit=limits.share_delivery_count_limit,
            max_locks=limits.share_partition_max_record_locks,
            renews=limits.share_renew_acknowledge_enable,
            has_letters=bool(self._router.letters.topic_of(group_id)),
        )

    def led_log(self, key: ShareKey) -> LedLog | ErrorCode:
        topic = self._cluster.topics.by_id(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[key.partition]
        if partition.leader != self._node.id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        limits = self._cluster.configs.groups.limits_of(key.group_id, self._node)
        is_committed = limits.share_isolation_level == _READ_COMMITTED
        log = partition.log
        end = log.last_stable_offset if is_committed else log.high_watermark
        return LedLog(log, partition.leader_epoch, end, is_committed)

    def first_offset(self, key: ShareKey, log: LedLog) -> int:
        limits = self._cluster.configs.groups.limits_of(key.group_id, self._node)
        reset = limits.share_auto_offset_reset
        if reset == "earliest":
            return log.log.start_offset
        if reset == "latest":
            return log.log.high_watermark
        found = log.log.offset_for_time(self._cluster.now_ms() - duration_ms(reset))
        return log.log.high_watermark if found is None else found.offset

    def read_state(self, key: ShareKey, leader_epoch: int) -> ShareState | ErrorCode:
        coordinator = self._router.coordinator(key)
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return coordinator.read(key, leader_epoch)

    def write_state(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete: int,
        batches: Sequence[StateBatch],
    ) -> ErrorCode:
        coordinator = self._router.coordinator(key)
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return coordinator.write(key, state_epoch, leader_epoch, start, complete, batches)

    def write_letters(self, key: ShareKey, letters: Sequence[Letter]) -> None:
        self._router.letters.write(self._node, key, letters)

    def changed(self) -> None:
        self._cluster.changed()
