"""Cluster metadata, as an immutable snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kohort.errors import ErrorCode, error_class
from kohort.logs import get_logger
from kohort.protocol import ZERO_UUID
from kohort.types import NamedTuple, TopicPartition, escaped

if TYPE_CHECKING:
    from kohort.protocol.messages import MetadataResponse

logger = get_logger("kohort.transport")

UNKNOWN_RESPONSES = 3
"""Responses in a row that must report a known topic as unknown before its partitions are removed.

Brokers learn of changes one after the other.
"""


OLDER_RESPONSES = 5
"""Responses in a row with an older leader epoch of a partition before that epoch is accepted.

The known epoch is then wrong, or it belongs to a recreated topic without an id. A broker that lags
catches up sooner, and the leader corrects the client in the meantime.
"""


class _Endpoint(Protocol):
    """A broker in a response."""

    node_id: int
    host: str
    port: int
    rack: str | None


class BrokerAddress(NamedTuple):
    """A broker with its address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @classmethod
    def of(cls, endpoint: _Endpoint) -> BrokerAddress:
        """Return the broker of a response."""
        return cls(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)

    @property
    def is_possible(self) -> bool:
        """True if there may be such a broker."""
        return self.id >= 0 and self.host != "" and 0 < self.port < 1 << 16


class Leader(NamedTuple):
    """The broker that leads a partition, and its leader epoch. -1 means unknown."""

    node: int
    epoch: int


class PartitionMetadata(NamedTuple):
    """Leader and replicas of a partition. ``leader`` is -1 without one, ``error`` an error code."""

    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: int = 0
    older: int = 0
    """Number of responses in a row with an older leader epoch."""


class TopicMetadata(NamedTuple):
    """A topic. With an ``error`` it keeps the partitions known before."""

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = MappingProxyType({})
    error: int = 0
    unknown: int = 0
    """Number of responses in a row that reported the topic as unknown."""

    @property
    def is_complete(self) -> bool:
        """True if each partition has a leader and the topic no retriable error."""
        return not error_class(self.error).retriable and all(
            partition.leader >= 0 for partition in self.partitions.values()
        )


class ClusterMetadata(NamedTuple):
    """A snapshot of the cluster. Safe to read from any thread."""

    cluster_id: str | None = None
    controller: int = -1
    brokers: Mapping[int, BrokerAddress] = MappingProxyType({})
    topics: Mapping[str, TopicMetadata] = MappingProxyType({})
    topic_names: Mapping[bytes, str] = MappingProxyType({})
    """Names of topics by id."""

    def leader(self, topic_partition: TopicPartition, /) -> Leader | None:
        """Return the leader of the partition, or None without a leader among the known brokers."""
        topic = self.topics.get(topic_partition.topic)
        partition = None if topic is None else topic.partitions.get(topic_partition.partition)
        if partition is None or partition.leader not in self.brokers:
            return None
        return Leader(partition.leader, partition.leader_epoch)

    def refused(self, topics: Iterable[str], /) -> frozenset[str]:
        """Return those of the topics that the principal may not describe."""
        known = (self.topics.get(topic) for topic in topics)
        return frozenset(each.name for each in known if each and _is_refused(each.error))

    def partitions_for(self, topic: str, /) -> tuple[int, ...]:
        """Return the partitions of a topic in order, or none if the topic is not known."""
        known = self.topics.get(topic)
        return () if known is None else tuple(sorted(known.partitions))

    def topic_by_id(self, topic_id: bytes, /) -> TopicMetadata | None:
        """Return the topic with the id, or None if it is not known (KIP-516)."""
        return self.topics.get(self.topic_names.get(topic_id, ""))

    def merged(
        self,
        response: MetadataResponse,
        *,
        keep: bool = False,
        requested: Iterable[str] | None = None,
    ) -> ClusterMetadata:
        """Return the snapshot after a response.

        ``keep``: True keeps topics that are not in the response. ``requested`` names the topics of
        the request, or None for all topics. One that the response leaves out counts as reported
        unknown.
        """
        topics = dict(self.topics) if keep else {}
        for name in requested or ():
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics[name] = _with_error(self.topics.get(name), name, code)
        for each in response.topics:
            if each.name is not None:
                topics[each.name] = _merge_topic(self.topics.get(each.name), each)
        return ClusterMetadata(
            cluster_id=response.cluster_id,
            controller=response.controller_id,
            brokers=MappingProxyType(
                {
                    each.node_id: BrokerAddress.of(each)
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
        """Return the snapshot with those leaders that are newer than the known ones (KIP-951).

        ``brokers`` has their addresses. A leader without a known or possible address is left out.
        The same snapshot is returned if no leader is newer.
        """
        named = {broker.id: broker for broker in brokers if broker.is_possible}
        reached = {**self.brokers, **named}
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
        """Return the snapshot for a client that starts again from its bootstrap servers."""
        return self._replace(brokers=MappingProxyType({}))


def _is_refused(code: int) -> bool:
    """Return True if a right is missing. The partitions are kept then."""
    return code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _merge_topic(
    old: TopicMetadata | None, response: MetadataResponse.MetadataResponseTopic
) -> TopicMetadata:
    name = response.name or ""
    if response.error_code:
        return _with_error(old, name, response.error_code)
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


def _with_error(old: TopicMetadata | None, name: str, code: int) -> TopicMetadata:
    unknown = 0
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        unknown = 1 if old is None else old.unknown + 1
    is_passing = error_class(code).retriable or _is_refused(code)
    if old is None or unknown >= UNKNOWN_RESPONSES or not is_passing:
        return TopicMetadata(name, error=code, unknown=unknown)
    return old._replace(error=code, unknown=unknown)


def _merge_partition(
    topic: str,
    old: PartitionMetadata | None,
    response: MetadataResponse.MetadataResponsePartition,
) -> PartitionMetadata:
    """Return the newer of both, so a lagging broker does not undo a leader change (KIP-320)."""
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
