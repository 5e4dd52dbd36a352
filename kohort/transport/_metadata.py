"""What the brokers say of the cluster, as an immutable snapshot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kohort.errors import ErrorCode, error_class
from kohort.protocol import ZERO_UUID
from kohort.types import TopicPartition, escaped

if TYPE_CHECKING:
    from kohort.protocol.messages import MetadataResponse

logger = logging.getLogger("kohort.transport")

UNKNOWN_RESPONSES = 3
"""So many answers in a row must call a known topic unknown before its partitions are forgotten:
brokers learn of changes one after the other."""


OLDER_RESPONSES = 5
"""So many answers in a row must give a partition an older leader epoch than the known one before
they are believed: that one was made up, or is of a topic that was deleted and made anew without an
id. A broker lags behind for a shorter time, and is put right by the leader that is asked then."""


class BrokerAddress(NamedTuple):
    """A broker, and where it is reached."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch of its leadership; -1 unknown."""

    node: int
    epoch: int


class PartitionMetadata(NamedTuple):
    """Where a partition is. ``leader`` is -1 if there is none, ``error`` a code of Kafka's."""

    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: int = 0
    older: int = 0
    """How many answers in a row gave an older leader epoch."""


class TopicMetadata(NamedTuple):
    """A topic. With an ``error`` the partitions are the last ones known, if any."""

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = MappingProxyType({})
    error: int = 0
    unknown: int = 0
    """How many answers in a row called the topic unknown."""

    @property
    def is_complete(self) -> bool:
        """False if asking again soon may tell more: an error that passes, or no leader."""
        return not error_class(self.error).retriable and all(
            partition.leader >= 0 for partition in self.partitions.values()
        )


class ClusterMetadata(NamedTuple):
    """The cluster at one moment. Safe to read from any thread."""

    cluster_id: str | None = None
    controller: int = -1
    brokers: Mapping[int, BrokerAddress] = MappingProxyType({})
    topics: Mapping[str, TopicMetadata] = MappingProxyType({})
    topic_names: Mapping[bytes, str] = MappingProxyType({})
    """Names of topics by id."""

    def leader(self, topic_partition: TopicPartition, /) -> Leader | None:
        """Who leads the partition; None if nobody does, or nobody that can be reached."""
        topic = self.topics.get(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        if partition is None or partition.leader not in self.brokers:
            return None
        return Leader(partition.leader, partition.leader_epoch)

    def refused(self, topics: Iterable[str], /) -> frozenset[str]:
        """Those of the topics that the principal may not describe."""
        known = (self.topics.get(topic) for topic in topics)
        return frozenset(each.name for each in known if each and _is_refused(each.error))

    def partitions_for(self, topic: str, /) -> tuple[int, ...]:
        """The partitions of a topic in order; empty if it is not known."""
        known = self.topics.get(topic)
        return () if known is None else tuple(sorted(known.partitions))

    def topic_by_id(self, topic_id: bytes, /) -> TopicMetadata | None:
        """The topic with the id (KIP-516); None if it is not known."""
        return self.topics.get(self.topic_names.get(topic_id, ""))

    def merged(self, response: MetadataResponse, *, keep: bool = False) -> ClusterMetadata:
        """The snapshot after an answer; ``keep``: with the topics that are not in the answer."""
        topics = dict(self.topics) if keep else {}
        for each in response.topics:
            if each.name is not None:
                topics[each.name] = _merge_topic(self.topics.get(each.name), each)
        return ClusterMetadata(
            cluster_id=response.cluster_id,
            controller=response.controller_id,
            brokers=MappingProxyType(
                {
                    each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
                    for each in response.brokers
                    if each.node_id >= 0
                }
            ),
            topics=MappingProxyType(topics),
            topic_names=MappingProxyType(
                {topic.topic_id: name for name, topic in topics.items() if any(topic.topic_id)}
            ),
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> ClusterMetadata:
        """The snapshot with those leaders that are newer than the known ones (KIP-951).

        ``brokers`` are where they are reached; a leader that is in neither is left out. The
        same snapshot if there is nothing newer.
        """
        reached = {**self.brokers, **{broker.id: broker for broker in brokers}}
        topics, used, changed = dict(self.topics), dict(self.brokers), False
        for tp, leader in leaders.items():
            topic = topics.get(tp.topic)
            old = None if topic is None else topic.partitions.get(tp.partition)
            if topic is None or old is None or leader.node not in reached:
                continue
            if leader.epoch > old.leader_epoch:
                new = old._replace(leader=leader.node, leader_epoch=leader.epoch, error=0, older=0)
                partitions = MappingProxyType({**topic.partitions, tp.partition: new})
                topics[tp.topic] = topic._replace(partitions=partitions)
                used[leader.node] = reached[leader.node]
                changed = True
        if not changed:
            return self
        return self._replace(brokers=MappingProxyType(used), topics=MappingProxyType(topics))

    def without_brokers(self) -> ClusterMetadata:
        """The snapshot of a client that has to start again from its bootstrap servers."""
        return self._replace(brokers=MappingProxyType({}))


def _is_refused(code: int) -> bool:
    """True if a right is missing: that says nothing of the partitions, which are kept."""
    return code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _merge_topic(
    old: TopicMetadata | None, response: MetadataResponse.MetadataResponseTopic
) -> TopicMetadata:
    name = response.name or ""
    if response.error_code:
        unknown = 0
        if response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            unknown = 1 if old is None else old.unknown + 1
        if (
            old is None
            or unknown >= UNKNOWN_RESPONSES
            or not (error_class(response.error_code).retriable or _is_refused(response.error_code))
        ):
            return TopicMetadata(name, error=response.error_code, unknown=unknown)
        return old._replace(error=response.error_code, unknown=unknown)
    same = old is not None and (
        old.topic_id == response.topic_id or ZERO_UUID in (old.topic_id, response.topic_id)
    )
    known = old.partitions if old is not None and same else {}
    return TopicMetadata(
        name,
        bytes(response.topic_id),
        response.is_internal,
        MappingProxyType(
            {
                each.partition_index: _merge_partition(name, known.get(each.partition_index), each)
                for each in response.partitions
                if each.partition_index >= 0
            }
        ),
    )


def _merge_partition(
    topic: str,
    old: PartitionMetadata | None,
    response: MetadataResponse.MetadataResponsePartition,
) -> PartitionMetadata:
    """The newer of both: a broker that lags behind must not undo a change of leader (KIP-320)."""
    if (
        old is not None
        and 0 <= response.leader_epoch < old.leader_epoch
        and old.older + 1 < OLDER_RESPONSES
    ):
        logger.debug(
            "%s-%d: leader epoch %d is older than the known %d",
            escaped(topic),
            response.partition_index,
            response.leader_epoch,
            old.leader_epoch,
        )
        return old._replace(older=old.older + 1)
    return PartitionMetadata(
        response.leader_id,
        response.leader_epoch,
        tuple(response.replica_nodes),
        tuple(response.isr_nodes),
        tuple(response.offline_replicas),
        response.error_code,
    )
