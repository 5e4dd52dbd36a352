"""One broker: a node of the cluster with its coordinators and its fetch sessions."""

from __future__ import annotations

import anyio

from kohort.broker._broker_node import BrokerNode
from kohort.broker._fetch_sessions import FetchSessions
from kohort.broker.cluster._cluster_state import ClusterState
from kohort.broker.cluster._topics import Partition, Replica, Topic
from kohort.broker.groups import GroupCoordinator
from kohort.broker.share import ShareCoordinator, ShareLeader
from kohort.broker.transactions import TransactionCoordinator
from kohort.errors import ErrorCode


class Broker:
    """State of one broker, as the request handlers use it."""

    def __init__(
        self,
        cluster: ClusterState,
        node: BrokerNode,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_coordinator: ShareCoordinator,
        share_leader: ShareLeader,
    ) -> None:
        self.cluster = cluster
        self.node = node
        self.coordinator = coordinator
        self.transactions = transactions
        self.share_coordinator = share_coordinator
        self.share_leader = share_leader
        self.fetch_sessions: FetchSessions = FetchSessions(cluster.rng)
        self.is_alive: bool = True
        self.cancel_scope: anyio.CancelScope = anyio.CancelScope()
        """Cancel scope of all tasks of the broker."""
        self.stopped: anyio.Event = anyio.Event()
        """Event that is set after the broker's connections are closed."""

    def kill(self) -> None:
        """Stop responding; the connections close with the next step of the event loop."""
        self.is_alive = False
        self.fetch_sessions.close()
        self.cancel_scope.cancel()

    def led_partition(
        self, topic: Topic | None, index: int, leader_epoch: int = -1
    ) -> Partition | ErrorCode:
        """Return the partition if this broker leads it, else an error code.

        The leader epoch must match unless it is -1.
        """
        replica = self.replica(topic, index, leader_epoch)
        if isinstance(replica, ErrorCode):
            return replica
        led = replica.partition.leader == self.node.id
        return replica.partition if led else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def replica(self, topic: Topic | None, index: int, leader_epoch: int) -> Replica | ErrorCode:
        """Return this broker's replica of a partition, or an error code.

        The leader epoch is compared before the leader is checked, as in Kafka.
        """
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[index]
        if self.node.id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = partition.check_epoch(leader_epoch)
        return partition.replica(self.node.id) if error is ErrorCode.NONE else error
