"""One broker: a node of the cluster with its coordinators and its fetch sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from kohort.errors import ErrorCode
from kohort.testing._fetch_sessions import FetchSessions
from kohort.testing._topics import Partition, Replica, Topic
from kohort.testing.groups import GroupCoordinator
from kohort.testing.transactions import TransactionCoordinator

if TYPE_CHECKING:
    from kohort.testing._core import ClusterCore


@dataclass(slots=True)
class BrokerNode:
    """Addresses and rack of a broker. ``ports``: listener -> port, 0 before the broker listens."""

    id: int
    host: str
    ports: dict[str, int] = field(default_factory=dict)
    rack: str | None = None

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()), 0)


class Broker:
    """What the handlers of requests work with."""

    def __init__(
        self,
        cluster: ClusterCore,
        node: BrokerNode,
        coordinator: GroupCoordinator,
        transactions: TransactionCoordinator,
    ) -> None:
        self.cluster = cluster
        self.node = node
        self.coordinator = coordinator
        self.transactions = transactions
        self.fetch_sessions = FetchSessions(cluster.rng)
        self.is_alive = True
        self.cancel_scope = anyio.CancelScope()
        """Around all that it runs."""
        self.stopped = anyio.Event()
        """Set when it runs no more: its connections are closed."""

    def kill(self) -> None:
        """Nothing is answered from now on; the connections are closed soon."""
        self.is_alive = False
        self.cancel_scope.cancel()

    def led_partition(
        self, topic: Topic | None, index: int, leader_epoch: int = -1
    ) -> Partition | ErrorCode:
        """The partition, if this broker leads it and the epoch, if not -1, is the leader's."""
        replica = self.replica(topic, index, leader_epoch)
        if isinstance(replica, ErrorCode):
            return replica
        led = replica.partition.leader == self.node.id
        return replica.partition if led else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def replica(self, topic: Topic | None, index: int, leader_epoch: int) -> Replica | ErrorCode:
        """What this broker has of a partition; epochs are compared before it is asked who leads."""
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[index]
        if self.node.id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = partition.check_epoch(leader_epoch)
        return partition.replica(self.node.id) if error is ErrorCode.NONE else error
