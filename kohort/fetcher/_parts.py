"""The parts of a fetcher, its options, and the callbacks by which it reaches its owner."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kohort.config import ConsumerConfig, Deserialize, FetchConfig
from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._candidates import Candidates
from kohort.fetcher._cluster_view import FetchCluster
from kohort.fetcher._failure_reports import DENIED_BACKOFF_MS, DeniedTopics, LookupFailures
from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._offsets import OffsetLookup
from kohort.fetcher._partition_queues import PartitionQueues
from kohort.fetcher._planning import FetchPlanner
from kohort.fetcher._recreated import RecreatedTopics
from kohort.fetcher._resets import PositionResets, reset_timestamp
from kohort.fetcher._response_intake import FetchCounters, ResponseIntake
from kohort.fetcher._retries import Retries
from kohort.fetcher._sizes import FetchSizes
from kohort.fetcher._validation import Validation
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import Backoff
from kohort.types import TopicPartition


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


class FetchParts(NamedTuple):
    """The parts of a fetcher. The event loop uses all of them, the caller the buffer."""

    buffer: FetchBuffer
    queues: PartitionQueues
    """The queues of the buffer."""
    memory: FetchMemory
    sizes: FetchSizes
    offsets: OffsetLookup
    leaders: Leaders
    replicas: Replicas
    retries: Retries[TopicPartition]
    node_retries: Retries[int]
    validation: Validation
    resets: PositionResets
    recreated: RecreatedTopics
    counters: FetchCounters
    intake: ResponseIntake
    candidates: Candidates
    planner: FetchPlanner

    def keep_only(self, owned: Collection[TopicPartition]) -> None:
        """Forget the state of partitions that are no longer assigned."""
        self.sizes.partitions = len(owned)
        self.retries.keep_only(owned)
        self.leaders.keep_only(owned)
        self.replicas.keep_only(owned)
        self.validation.keep_only(owned)
        self.resets.keep_only(owned)
        self.intake.keep_only(owned)
        self.planner.keep_only(owned)


def make_parts(
    cluster: FetchCluster,
    subscription: SubscriptionState,
    options: FetcherOptions,
    events: FetcherEvents,
    wake: Callable[[], None],
    on_validated: Callable[[Iterable[TopicPartition]], None],
) -> FetchParts:
    """Return the parts of a new fetcher.

    ``wake`` and ``on_validated`` must refer to the fetcher weakly, so that the last reference to a
    closed consumer frees it.
    """
    config, rng = options.config, options.rng
    backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
    denied_backoff = Backoff.from_ms(DENIED_BACKOFF_MS, options.metadata_max_age_ms)
    sizes = FetchSizes(config)
    memory = FetchMemory(config.buffer_memory)
    buffer = FetchBuffer(
        subscription,
        max_bytes=sizes.read_ahead,
        on_room=events.on_room or wake,
        may_deliver=events.may_deliver,
        on_error=config.on_error,
        memory=memory,
        laggiest_first=config.fetch_order == "lag",
    )
    queues = buffer.queues
    denied_topics = DeniedTopics(queues, config.on_error, cluster)
    on_ready = events.on_ready

    def lookup_failures() -> LookupFailures:
        retries = Retries[TopicPartition](backoff, rng, denied_backoff)
        return LookupFailures(queues, retries, denied_topics, on_ready)

    def on_position(tp: TopicPartition, epoch: int, leader_epoch: int) -> None:
        validation.mark_validated(tp, epoch, leader_epoch)
        on_ready()  # start() may wait for the position

    def timestamp(strategy: OffsetReset) -> int:
        return reset_timestamp(strategy, options.wall_clock())

    def size_of(tp: TopicPartition, node: int) -> int:
        return max(intake.sizes.get(tp, 0), sizes.partition_bytes(node))

    retries = Retries[TopicPartition](backoff, rng, denied_backoff)
    leaders = Leaders(cluster, backoff, rng)
    replicas = Replicas(options.metadata_max_age_ms / 1000)
    offsets = OffsetLookup(cluster, config, rng=rng)
    validation = Validation(cluster, subscription, queues, lookup_failures(), on_done=on_validated)
    resets = PositionResets(
        leaders,
        subscription,
        offsets,
        lookup_failures(),
        on_found=wake,
        on_position=on_position,
        timestamp=timestamp,
        first_reset=options.first_reset or (lambda tp: subscription.default_reset),
    )
    counters = FetchCounters()
    intake = ResponseIntake(
        cluster, queues, leaders, replicas, validation, retries, counters, denied_topics
    )
    candidates = Candidates(
        subscription, queues.limits, leaders, replicas, retries, validation, size_of
    )
    return FetchParts(
        buffer=buffer,
        queues=queues,
        memory=memory,
        sizes=sizes,
        offsets=offsets,
        leaders=leaders,
        replicas=replicas,
        retries=retries,
        node_retries=Retries(backoff, rng),
        validation=validation,
        resets=resets,
        recreated=RecreatedTopics(subscription, queues, on_ready=on_ready),
        counters=counters,
        intake=intake,
        candidates=candidates,
        planner=FetchPlanner(candidates, queues, config, sizes, intake.arrival_of),
    )
