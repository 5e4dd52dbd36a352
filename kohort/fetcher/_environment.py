"""Options, callbacks and cluster that a fetcher gets from its owner. Tests have another cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from kohort.config import ConsumerConfig, Deserialize, FetchConfig
from kohort.fetcher._retries import Retries
from kohort.protocol import Request, Response
from kohort.subscription import OffsetReset
from kohort.transport import Backoff, BrokerAddress, Leader, Leased, Line, TopicMetadata
from kohort.types import NamedTuple, TopicPartition

R = TypeVar("R", bound=Response)

DENIED_BACKOFF_MS = 1000
"""First back-off after a denied request; it doubles up to ``metadata_max_age_ms``."""


class FetcherOptions(NamedTuple):
    """Options that stay the same for the life of a fetcher."""

    config: FetchConfig
    wall_clock: Callable[[], float]
    """Function that returns seconds since 1970."""
    metadata_max_age_ms: int
    rng: random.Random
    key_deserializer: Deserialize | None = None
    value_deserializer: Deserialize | None = None
    rack: str | None = None
    """The client's rack, for fetches from followers (KIP-392)."""
    first_reset: Callable[[TopicPartition], OffsetReset | None] | None = None
    """Rule for a partition without a committed offset. The default is ``auto_offset_reset``."""

    @classmethod
    def of(
        cls,
        config: ConsumerConfig,
        wall_clock: Callable[[], float],
        rng: random.Random,
        first_reset: Callable[[TopicPartition], OffsetReset | None],
    ) -> FetcherOptions:
        """Return the options of a consumer's fetcher."""
        return cls(
            config=config.fetch,
            wall_clock=wall_clock,
            metadata_max_age_ms=config.client.metadata_max_age_ms,
            key_deserializer=config.deserialize_key,
            value_deserializer=config.deserialize_value,
            rack=config.group.client_rack,
            rng=rng,
            first_reset=first_reset,
        )

    @property
    def backoff(self) -> Backoff:
        """The back-off before retries."""
        return Backoff.from_ms(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    def partition_retries(self) -> Retries[TopicPartition]:
        """Return new back-offs of partitions, which are longer after a missing right."""
        denied_backoff = Backoff.from_ms(DENIED_BACKOFF_MS, self.metadata_max_age_ms)
        return Retries(self.backoff, self.rng, denied_backoff)


class FetcherEvents(NamedTuple):
    """Callbacks of the fetcher. They run in its event loop, if nothing else is said."""

    on_ready: Callable[[], None] = lambda: None
    """Called when there are records or errors to drain."""
    notify_waiting_caller: Callable[[], bool] = lambda: False
    """Called before ``on_ready``, in the callback that received a small response.

    It returns True if it notified the caller.
    """
    on_room: Callable[[], None] | None = None
    """Called on the caller's thread by a drain that makes room the fetcher waits for."""
    may_deliver: Callable[[], bool] = lambda: True
    """Called on the caller's thread. While it returns False, drains return nothing."""


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
