"""The part of ClusterClient that the group uses, as protocols that tests can implement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.protocol import ZERO_UUID, Request, Response
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)


class PartitionView(Protocol):
    """A partition in the metadata."""

    @property
    def replicas(self) -> Collection[int]: ...


class TopicView(Protocol):
    """A topic in the metadata."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Mapping[int, PartitionView]: ...


class BrokerView(Protocol):
    """A broker in the metadata."""

    @property
    def rack(self) -> str | None: ...


class MetadataView(Protocol):
    """A snapshot of the cluster's metadata."""

    @property
    def brokers(self) -> Mapping[int, BrokerView]: ...
    @property
    def topics(self) -> Mapping[str, TopicView]: ...
    @property
    def topic_names(self) -> Mapping[bytes, str]: ...


class GroupCluster(Protocol):
    """The connections to the brokers and the metadata."""

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

    def prepare(self, node: int, purpose: str, /) -> None: ...

    async def fetch_topics(self, names: Collection[str] | None, /) -> MetadataView: ...

    def request_refresh(self) -> None: ...


class TopicIdHistory(Protocol):
    """The topic ids, and the offsets that belong to deleted topics."""

    def current_id(self, topic: str, /) -> bytes:
        """Return the topic's current id; zeros if it has none or it is unknown."""

    def is_deleted_offset(self, tp: TopicPartition, offset: int, /) -> bool:
        """True if the offset is known to belong to a deleted topic."""

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        """Note that the coordinator does not know this id, so the topic may have a new one."""


class LatestIds:
    """The topic ids of the current metadata, without earlier ids."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster

    def current_id(self, topic: str, /) -> bytes:
        known = self._cluster.metadata.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def is_deleted_offset(self, tp: TopicPartition, offset: int, /) -> bool:
        return False

    def mark_unconfirmed(self, topic: str, topic_id: bytes, /) -> None:
        pass


def topic_ids(history: TopicIdHistory, names: Iterable[str]) -> dict[str, bytes] | None:
    """Return the ids of these topics, or None if one of them is unknown (KIP-516)."""
    ids = {name: history.current_id(name) for name in names}
    return None if ZERO_UUID in ids.values() else ids
