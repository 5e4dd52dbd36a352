"""Metadata of the cluster in the classes of ``confluent_kafka.admin``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort import KafkaAdminClient
from kohort.compat._peer import peer_name
from kohort.compat.confluent._errors import to_error
from kohort.errors import KafkaError as NativeError

_MODULE = "confluent_kafka.admin._metadata"


class ClusterMetadata:
    """Brokers and topics of a cluster."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id: int = -1
        self.orig_broker_name: str | None = None


class BrokerMetadata:
    """Id and address of a broker."""

    def __init__(self) -> None:
        self.id: int = -1
        self.host: str | None = None
        self.port: int = -1


class TopicMetadata:
    """Partitions of a topic, or its error."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: Any = None


class PartitionMetadata:
    """Leader and replicas of a partition."""

    def __init__(self) -> None:
        self.id: int = -1
        self.leader: int = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: Any = None


if not TYPE_CHECKING:
    ClusterMetadata = peer_name(_MODULE, "ClusterMetadata") or ClusterMetadata
    BrokerMetadata = peer_name(_MODULE, "BrokerMetadata") or BrokerMetadata
    TopicMetadata = peer_name(_MODULE, "TopicMetadata") or TopicMetadata
    PartitionMetadata = peer_name(_MODULE, "PartitionMetadata") or PartitionMetadata


def cluster_metadata(
    admin: KafkaAdminClient, topic: str | None, timeout_ms: float | None
) -> ClusterMetadata:
    """Return the cluster with one topic, or with all topics."""
    cluster = admin.describe_cluster(timeout_ms)
    topics = admin.describe_topics(topic, timeout_ms)
    found = ClusterMetadata()
    found.cluster_id, found.controller_id = cluster.cluster_id, cluster.controller
    found.brokers = _brokers(cluster)
    found.topics = {name: _topic(each) for name, each in topics.items()}
    for name, error in topics.errors.items():
        found.topics[name] = _failed(name, error)
    if cluster.brokers:
        first = cluster.brokers[0]
        found.orig_broker_id = first.id
        found.orig_broker_name = f"{first.host}:{first.port}/{first.id}"
    return found


def _brokers(cluster: Any) -> dict[int, BrokerMetadata]:
    found: dict[int, BrokerMetadata] = {}
    for each in cluster.brokers:
        broker = found[each.id] = BrokerMetadata()
        broker.id, broker.host, broker.port = each.id, each.host, each.port
    return found


def _topic(described: Any) -> TopicMetadata:
    topic = TopicMetadata()
    topic.topic = described.name
    for each in described.partitions:
        partition = topic.partitions[each.partition] = PartitionMetadata()
        partition.id = each.partition
        partition.leader = -1 if each.leader is None else each.leader
        partition.replicas, partition.isrs = list(each.replicas), list(each.isr)
    return topic


def _failed(name: str, error: NativeError) -> TopicMetadata:
    topic = TopicMetadata()
    topic.topic, topic.error = name, to_error(error)
    return topic
