"""What an assignor is, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from kohort.coordinator_client.assignors._java import java_order
from kohort.coordinator_client.assignors._slices import Steps, finish
from kohort.types import ConsumerGroupMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    """What the leader's assignor tells the member's."""


PartitionsByMember = Mapping[str, Sequence[TopicPartition]]
"""Member id -> its partitions."""

Assignments = Mapping[str, Sequence[TopicPartition] | Assignment]
"""Member id -> its partitions, with user data or without."""


class RebalanceProtocol(IntEnum):
    """What a member does with its partitions when a rebalance begins; the higher is preferred."""

    EAGER = 0
    """Everything is given up before JoinGroup."""
    COOPERATIVE = 1
    """Everything is kept; what has to move is given up after SyncGroup (KIP-429)."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member of the group says of itself when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """What the member's own assignor put there."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions it still holds; empty for an eager member (KIP-429)."""
    generation: int = -1
    """The generation ``owned`` is from; -1 if the member is too old to say (KIP-792)."""
    rack: str | None = None
    group_instance_id: str | None = None
    """Set for a static member (KIP-345)."""


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """The partitions of the topics that members of the group subscribe to."""

    partitions: Mapping[str, int]
    """Topic -> number of partitions. A topic that does not exist is not in it."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Partition -> racks of its replicas, as far as they are known."""

    def topics(self) -> set[str]:
        """The topics that exist."""
        return set(self.partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partition numbers; None if there is no such topic."""
        count = self.partitions.get(topic)
        return None if count is None else set(range(count))

    def replica_racks(self, partition: TopicPartition) -> frozenset[str]:
        """The racks of the partition's replicas; empty if they are not known."""
        return self.racks.get(partition, frozenset())


class PartitionAssignor(ABC):
    """Deals the partitions of all subscribed topics to the members of a group.

    Subclass it for a strategy of your own, give it a ``name`` that all members of the group know
    it by, and pass the class or an instance in ``partition_assignment_strategy``. The group uses
    a strategy that every member offers; of several, the one that most members list first. A
    strategy of your own runs on the thread or task that calls ``poll()``.
    """

    name: ClassVar[str]
    """What the members of a group call it on the wire, such as ``"range"``."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})
    """A member rebalances by the highest that all of its assignors support."""
    version: ClassVar[int] = 0
    """The version of what it puts into ``user_data``."""

    @abstractmethod
    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        """Deal every partition to one member that subscribes to its topic.

        Called on the group's leader. Members may be left out of the result; a partition given
        twice, or given to a member that does not want it, is an AssignorError. So is, in a
        cooperative group, a partition given to one member while another one owns it: leave it out,
        and deal it in the rebalance that follows when its owner has given it up.
        """

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """What to tell the leader's assignor about this member; asked at each join."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Told what this member was given, before the rebalance listener is."""
        return


class BuiltInAssignor(PartitionAssignor):
    """An assignor that comes with kohort: it runs in steps, in the event loop of the consumer."""

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
    """The member ids as every Kafka client orders them.

    Static members come first, by their instance id, so that a restart changes nothing; then the
    others by member id.
    """

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = subscriptions[member_id].group_instance_id
        return instance is None, java_order(member_id if instance is None else instance)

    return sorted(subscriptions, key=key)


def subscribers(subscriptions: Mapping[str, Subscription]) -> Steps[dict[str, list[str]]]:
    """Topic -> its members, in the order of :func:`members_in_order`. Topics may share a list."""
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
    """The highest rebalance protocol that all of them support; None if there is none."""
    common = frozenset.intersection(*(assignor.protocols for assignor in assignors))
    return max(common, default=None)
