"""What the group needs of the cluster: a part of ClusterClient, so that tests can stand in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.coordinator_client.assignors import ClusterTopics
from kohort.protocol import ZERO_UUID, Request, Response
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)


class PartitionView(Protocol):
    """A partition of the metadata."""

    @property
    def replicas(self) -> Collection[int]: ...


class TopicView(Protocol):
    """A topic of the metadata."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Mapping[int, PartitionView]: ...


class BrokerView(Protocol):
    """A broker of the metadata."""

    @property
    def rack(self) -> str | None: ...


class MetadataView(Protocol):
    """A snapshot of the cluster."""

    @property
    def brokers(self) -> Mapping[int, BrokerView]: ...
    @property
    def topics(self) -> Mapping[str, TopicView]: ...


class GroupCluster(Protocol):
    """The connections and the metadata."""

    @property
    def metadata(self) -> MetadataView: ...

    @property
    def principal(self) -> str | None: ...

    async def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> R: ...

    async def fetch_topics(self, names: Collection[str] | None, /) -> MetadataView: ...

    def request_refresh(self) -> None: ...


class TopicIdHistory(Protocol):
    """The ids of topics, and the offsets that belong to topics that were deleted."""

    def current_id(self, topic: str, /) -> bytes:
        """The id that the topic has now; zeros if it has none, or it is not known."""

    def is_deleted_offset(self, tp: TopicPartition, offset: int, /) -> bool:
        """True if the offset is known to belong to a topic that was deleted."""

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        """The coordinator does not know this id: the topic may have another one by now."""


class LatestIds:
    """The ids as the metadata has them, with no memory of others."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster

    def current_id(self, topic: str, /) -> bytes:
        known = self._cluster.metadata.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def is_deleted_offset(self, tp: TopicPartition, offset: int, /) -> bool:
        return False

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        pass


def known_topics(metadata: MetadataView, names: Iterable[str], *, racks: bool) -> ClusterTopics:
    """What the metadata knows of these topics; those without partitions are left out.

    ``racks``: with the racks of the replicas, as far as they are known.
    """
    found = {name: metadata.topics[name].partitions for name in names if name in metadata.topics}
    counts = {name: len(partitions) for name, partitions in found.items() if partitions}
    if not racks:
        return ClusterTopics(counts)
    rack_of = {node: broker.rack for node, broker in metadata.brokers.items()}
    known: dict[Collection[int], frozenset[str]] = {}

    def racks_of(replicas: Collection[int]) -> frozenset[str]:
        if replicas not in known:
            known[replicas] = frozenset(rack for node in replicas if (rack := rack_of.get(node)))
        return known[replicas]

    return ClusterTopics(
        counts,
        {
            TopicPartition(name, number): racks_of(partition.replicas)
            for name, partitions in found.items()
            for number, partition in partitions.items()
        },
    )


def topic_ids(history: TopicIdHistory, names: Iterable[str]) -> dict[str, bytes] | None:
    """The ids of all of these topics; None if one is not known (KIP-516)."""
    ids = {name: history.current_id(name) for name in names}
    return None if ZERO_UUID in ids.values() else ids
