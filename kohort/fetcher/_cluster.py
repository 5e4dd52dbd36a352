"""What the fetcher needs of the cluster: a part of ClusterClient, so that tests can stand in."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol, TypeVar

from kohort.protocol import Request, Response
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)
R_co = TypeVar("R_co", bound=Response, covariant=True)


class Leader(NamedTuple):
    """The broker to ask for a partition, and the epoch of its leadership; -1 unknown."""

    node: int
    epoch: int


class Leased(Protocol[R_co]):
    """An answer whose bytes are in a pooled buffer until it is released."""

    @property
    def response(self) -> R_co: ...

    def release(self) -> None: ...


class Metadata(Protocol):
    """A snapshot of who leads what."""

    def leader(self, topic_partition: TopicPartition, /) -> Leader | None: ...


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

    async def request_leased(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> Leased[R]: ...

    async def fetch_topics(self, names: Collection[str] | None, /) -> Metadata: ...

    def request_refresh(self) -> None: ...
