"""The base classes of assignors and their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar

from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._slices import Steps, finish
from kohort.types import ConsumerGroupMetadata, NamedTuple, TopicPartition


class Assignment(NamedTuple):
    """The assignment of one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    """Data from the leader's assignor for the member's assignor."""


PartitionsByMember = Mapping[str, Sequence[TopicPartition]]
"""Partitions by member id."""

Assignments = Mapping[str, Sequence[TopicPartition] | Assignment]
"""Partitions by member id, with or without user data."""


class RebalanceProtocol(IntEnum):
    """The rule for a member's partitions when a rebalance begins. A higher value is preferred."""

    EAGER = 0
    """The member revokes all partitions before JoinGroup."""
    COOPERATIVE = 1
    """The member keeps all partitions and revokes those that move after SyncGroup (KIP-429)."""


class Subscription(NamedTuple):
    """The metadata that one member sends when it joins the group."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Data from the member's assignor."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions that the member still owns. An eager member has none (KIP-429)."""
    generation: int = -1
    """The generation of ``owned``, or -1 if the member's version does not send it (KIP-792)."""
    rack: str | None = None
    group_instance_id: str | None = None
    """The ``group_instance_id`` of a static member (KIP-345), else None."""


class ClusterTopics(NamedTuple):
    """The partitions of the topics that members of the group subscribe to."""

    partitions: Mapping[str, int]
    """Number of partitions by topic. Topics that do not exist are left out."""
    racks: Mapping[TopicPartition, frozenset[str]] = MappingProxyType({})
    """Known racks of the replicas by partition."""

    def topics(self) -> set[str]:
        """Return the existing topics."""
        return set(self.partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the topic's partition numbers, or None if it does not exist."""
        count = self.partitions.get(topic)
        return None if count is None else set(range(count))

    def replica_racks(self, partition: TopicPartition) -> frozenset[str]:
        """Return the known racks of the partition's replicas."""
        return self.racks.get(partition, frozenset())


class PartitionAssignor(ABC):
    """A strategy that assigns the partitions of all subscribed topics to a group's members.

    Subclass it for your own strategy and set a ``name`` that all members of the group use. Then
    pass the class or an instance in ``partition_assignment_strategy``. The group uses a strategy
    that every member offers. If there are several, it uses the one that most members list first.
    Your strategy runs on the thread or task that calls ``poll()``.
    """

    name: ClassVar[str]
    """The name that members send in JoinGroup, such as ``"range"``."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})
    """The supported protocols. A member uses the highest one that all its assignors support."""
    uses_racks: ClassVar[bool] = True
    """False if the assignor does not read the racks. Their change then begins no rebalance."""
    version: ClassVar[int] = 0
    """The version of the assignor's ``user_data``."""

    @abstractmethod
    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        """Assign every partition to one member that subscribes to its topic.

        This runs on the group's leader. The result may leave out members. A partition that is
        assigned twice, or to a member without a subscription to its topic, raises AssignorError.

        In a cooperative group that also holds for a partition that another member owns. Leave it
        out. Its owner revokes it, and you assign it in the rebalance that follows.
        """

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return data about this member for the leader's assignor. Called before each JoinGroup."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Handle this member's new assignment. Called before the rebalance listener."""
        return


class BuiltInAssignor(PartitionAssignor):
    """An assignor of kohort. It runs in steps in the consumer's event loop."""

    @abstractmethod
    def steps(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Steps[PartitionsByMember]:
        """Compute the assignment in steps."""

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> PartitionsByMember:
        return finish(self.steps(cluster, subscriptions))


def members_in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids in the order that every Kafka client uses.

    Static members come first, by instance id, so that a restart does not change the order. The
    others follow by member id.
    """

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = subscriptions[member_id].group_instance_id
        return instance is None, java_order(member_id if instance is None else instance)

    return sorted(subscriptions, key=key)


def subscribers(subscriptions: Mapping[str, Subscription]) -> Steps[dict[str, list[str]]]:
    """Return the subscribed members by topic, in the order of :func:`members_in_order`.

    Topics may share a list.
    """
    in_order = members_in_order(subscriptions)
    if len(frozenset(subscription.topics for subscription in subscriptions.values())) == 1:
        return dict.fromkeys(subscriptions[in_order[0]].topics, in_order)
    result: dict[str, list[str]] = {}
    for member_id in in_order:
        for topic in dict.fromkeys(subscriptions[member_id].topics):
            result.setdefault(topic, []).append(member_id)
        yield
    return result


def common_protocol(assignors: Iterable[PartitionAssignor]) -> RebalanceProtocol | None:
    """Return the highest rebalance protocol that all assignors support, or None."""
    common = frozenset.intersection(*(assignor.protocols for assignor in assignors))
    return max(common, default=None)
