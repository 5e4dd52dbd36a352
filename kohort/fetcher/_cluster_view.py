"""Protocols for the part of ClusterClient that the fetcher uses. Tests implement them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.protocol import Request, Response
from kohort.transport import BrokerAddress, Leader, Leased, Line, TopicMetadata
from kohort.types import TopicPartition

R = TypeVar("R", bound=Response)


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
        on_response: Callable[[Leased[R]], None] | None = None,
    ) -> Leased[R]: ...

    async def fetch_topics(
        self, names: Collection[str] | None, /, *, may_create: bool = True
    ) -> LeaderView: ...

    def close_connection(self, node: int, purpose: str, /) -> None: ...

    def prepare(self, node: int, purpose: str, /) -> None: ...

    def line(self, node: int, /) -> Line | None: ...

    def request_refresh(self) -> None: ...

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> None: ...
