"""What the group needs of the cluster: a part of ClusterClient, so that tests can stand in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.coordinator_client.assignors import ClusterTopics
from kohort.protocol import ZERO_UUID, Request, Response

R = TypeVar("R", bound=Response)


class Topic(Protocol):
    """A topic of the metadata."""

    @property
    def error(self) -> int: ...
    @property
    def topic_id(self) -> bytes: ...


class Metadata(Protocol):
    """A snapshot of the topics."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...
    def partitions_for(self, topic: str, /) -> Collection[int]: ...


class Cluster(Protocol):
    """The connections and the metadata."""

    @property
    def metadata(self) -> Metadata: ...

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

    async def fetch_topics(self, names: Collection[str] | None, /) -> Metadata: ...

    def request_refresh(self) -> None: ...


def known_topics(metadata: Metadata, names: Iterable[str]) -> ClusterTopics:
    """What the metadata knows of these topics; those without partitions are left out."""
    counts = {name: len(metadata.partitions_for(name)) for name in names}
    return ClusterTopics({name: count for name, count in counts.items() if count})


def topic_ids(metadata: Metadata, names: Iterable[str]) -> dict[str, bytes] | None:
    """The ids of all of these topics; None if one is not known (KIP-516)."""
    ids = {}
    for name in names:
        topic = metadata.topics.get(name)
        if topic is None or topic.topic_id == ZERO_UUID:
            return None
        ids[name] = topic.topic_id
    return ids
