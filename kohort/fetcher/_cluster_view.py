"""Protocols for the part of ClusterClient that the fetcher uses. Tests implement them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.protocol import Request, Response
from kohort.transport import BrokerAddress, Leader, Line, TopicMetadata
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)
R_co = TypeVar("R_co", bound=Response, covariant=True)


class PooledResponse(Protocol[R_co]):
    """A response whose bytes are in a pooled buffer until any thread releases it."""

    @property
    def is_pooled(self) -> bool: ...

    @property
    def response(self) -> R_co: ...

    def release(self) -> None: ...


class LeaderView(Protocol):
    """A snapshot of topics and leaders."""

    @property
    def topics(self) -> Mapping[str, TopicMetadata]: ...

    def leader(self, topic_partition: TopicPartition, /) -> Leader | None: ...


class FetchCluster(Protocol):
    """Requests to the brokers, and the cluster metadata."""

    @property
    def metadata(self) -> LeaderView: ...

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

    async def request_leased(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
        on_response: Callable[[PooledResponse[R]], None] | None = None,
    ) -> PooledResponse[R]: ...

    async def fetch_topics(
        self, names: Collection[str] | None, /, *, may_create: bool = True
    ) -> LeaderView: ...

    def line(self, node: int, /) -> Line | None: ...

    def request_refresh(self) -> None: ...

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> None: ...
