"""Positions: looked up by ``auto_offset_reset``, and validated under each new leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.errors import KafkaError, NoOffsetForPartitionError
from kohort.fetcher._environment import FetchCluster, FetcherOptions
from kohort.fetcher._errors import Failure, FailureAction
from kohort.fetcher._failure_reports import DeniedTopics, LookupFailures
from kohort.fetcher._first_offsets import LOG_ENDS, FirstOffsets
from kohort.fetcher._leaders import Leaders
from kohort.fetcher._offsets import LATEST, OffsetLookup, no_leader
from kohort.fetcher._recreated import recreated_error
from kohort.fetcher._validation import PositionCheck, Validation
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.logs import get_logger
from kohort.subscription import NO_ID, OffsetReset, PendingReset, SubscriptionState
from kohort.transport import start_soon
from kohort.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = get_logger("kohort.fetcher")

MAX_NAMED = 5
"""Largest number of partitions named in a log line."""


def reset_timestamp(strategy: OffsetReset, now: float) -> int:
    """Return the timestamp for ListOffsets, or raise KeyError for "none".

    ``now`` is in seconds since 1970.
    """
    if strategy.duration_ms is None:
        return LOG_ENDS[strategy]
    return max(0, int(now * 1000) - strategy.duration_ms)


class PositionResets:
    """Look-ups of missing positions, with one request to each leader."""

    def __init__(
        self,
        leaders: Leaders,
        subscription: SubscriptionState,
        offsets: OffsetLookup,
        first_offsets: FirstOffsets,
        failures: LookupFailures,
        *,
        on_found: Callable[[], None],
        on_position: Callable[[TopicPartition, int, int], None],
        wall_clock: Callable[[], float],
        first_reset: Callable[[TopicPartition], OffsetReset | None],
    ) -> None:
        self._leaders = leaders
        self._subscription = subscription
        self._offsets = offsets
        self._first_offsets = first_offsets
        self._failures = failures
        self._on_found = on_found
        self._on_position = on_position
        self._wall_clock = wall_clock
        self._first_reset = first_reset
        self._in_flight: set[tuple[TopicPartition, int]] = set()
        self._reported: dict[TopicPartition, int] = {}

    def start(self, tasks: TaskGroup, resets: Iterable[PendingReset], now: float) -> float:
        """Request the positions that are due, and return the time of the next call."""
        wake_at = float("inf")
        by_node: dict[int, dict[TopicPartition, PendingReset]] = defaultdict(dict)
        started: dict[str, list[str]] = defaultdict(list)
        for pending in resets:
            tp, epoch = pending.topic_partition, pending.epoch
            strategy = self._first_reset(tp) if pending.is_first else pending.strategy
            if strategy == OffsetReset.NONE:
                self._report_missing(pending)
            elif pending.is_first and self._first_offsets.awaits(tp):
                pass  # its end calls on_found()
            elif (tp, epoch) not in self._in_flight:
                not_before = self._failures.retries.not_before(tp, epoch)
                if strategy is None or (leader := self._leaders.find(tp)) is None:
                    wake_at = min(wake_at, self._leaders.request_refresh(tp, now))
                elif not_before > now:
                    wake_at = min(wake_at, not_before)
                else:
                    due_now = pending._replace(strategy=strategy)
                    first = self._first_offsets.take(due_now, now) if pending.is_first else None
                    if first is None:
                        by_node[leader.node][tp] = due_now
                    elif self._set_position(due_now, first.found, first.leader_epoch):
                        started[strategy.value].append(_place(tp, first.found))
        if started:
            _log_starts(started)
            self._on_found()
        for node, due in by_node.items():
            self._in_flight.update((tp, pending.epoch) for tp, pending in due.items())
            epochs = {tp: leader.epoch for tp in due if (leader := self._leaders.find(tp))}
            start_soon(tasks, self._look_up, node, due, epochs)
        return wake_at

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the failures of all other partitions."""
        self._failures.keep_only(partitions)

    async def _look_up(
        self,
        node: int,
        due: Mapping[TopicPartition, PendingReset],
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        try:
            wanted = {
                tp: reset_timestamp(pending.strategy, self._wall_clock())
                for tp, pending in due.items()
            }
            # Without a record as young as the timestamp, the position is the end. The end is
            # requested first, so that records written in between are not skipped.
            by_time = {tp: LATEST for tp, timestamp in wanted.items() if timestamp >= 0}
            ends = await self._offsets.request_offsets(node, by_time) if by_time else {}
            results = await self._offsets.request_offsets(node, wanted)
            results.update({tp: end for tp, end in ends.items() if results[tp] is None})
        except Exception as error:
            # This is a defect, but it must not stop the other partitions.
            logger.exception("looking up offsets at broker %d failed", node)
            failure = Failure(
                KafkaError(f"looking up offsets failed: {error!r}"), FailureAction.RAISE
            )
            results = dict.fromkeys(due, failure)
        finally:
            self._in_flight.difference_update((tp, pending.epoch) for tp, pending in due.items())
        now = anyio.current_time()
        started: dict[str, list[str]] = defaultdict(list)
        for tp, found in results.items():
            pending = due[tp]
            if not isinstance(found, OffsetAndTimestamp):
                self._failures.note(tp, pending.epoch, found or no_leader(tp), now)
            elif self._set_position(pending, found, epochs[tp]):
                started[pending.strategy.value].append(_place(tp, found))
        _log_starts(started)
        self._failures.log()
        self._on_found()

    def _set_position(self, pending: PendingReset, found: OffsetAndTimestamp, under: int) -> bool:
        """Set a position, and return False if the partition no longer waits for it."""
        tp, epoch = pending.topic_partition, pending.epoch
        self._failures.succeeded(tp)
        if self._subscription.set_position(
            tp,
            found.offset,
            found.leader_epoch,
            epoch=epoch,
            topic_id=pending.topic_id,
            by_rule=pending.strategy if pending.is_first else None,
        ):
            self._on_position(tp, epoch, under)
            return True
        return False

    def _report_missing(self, pending: PendingReset) -> None:
        tp, epoch = pending.topic_partition, pending.epoch
        if self._reported.get(tp) == epoch:
            return
        self._reported[tp] = epoch
        history = self._subscription.history
        old, now = history.last_position_id(tp), history.current_id(tp.topic)
        error: KafkaError = NoOffsetForPartitionError(
            f"no position for {tp.topic}-{tp.partition}: there is no committed offset, and "
            f'auto_offset_reset is "none". Call seek({tp}, ...), seek_to_beginning({tp}) or '
            "seek_to_end(...), or commit an offset first",
            topic_partition=tp,
        )
        if NO_ID not in (old, now) and old != now:
            error = recreated_error(tp, None, old, now)
        self._failures.report(tp, epoch, error, is_transient=False)


class Positions:
    """The positions of all partitions, from a missing one to one that may be fetched.

    ``wake`` and ``on_validated`` must refer to the fetcher weakly, so that the last reference to a
    closed consumer frees it.
    """

    def __init__(
        self,
        cluster: FetchCluster,
        subscription: SubscriptionState,
        queues: PartitionQueues,
        leaders: Leaders,
        denied_topics: DeniedTopics,
        options: FetcherOptions,
        *,
        on_ready: Callable[[], None],
        wake: Callable[[], None],
        on_validated: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        def failures() -> LookupFailures:
            return LookupFailures(queues, options.partition_retries(), denied_topics, on_ready)

        def on_position(tp: TopicPartition, epoch: int, leader_epoch: int) -> None:
            validation.mark_validated(tp, epoch, leader_epoch)
            on_ready()  # start() may wait for the position

        first_reset = options.first_reset or (lambda tp: subscription.default_reset)
        self.offsets = OffsetLookup(cluster, options.config, rng=options.rng)
        self.first_offsets = FirstOffsets(
            leaders, subscription, self.offsets, on_found=wake, first_reset=first_reset
        )
        self.validation = validation = Validation(
            cluster, subscription, failures(), on_done=on_validated
        )
        self._resets = PositionResets(
            leaders,
            subscription,
            self.offsets,
            self.first_offsets,
            failures(),
            on_found=wake,
            on_position=on_position,
            wall_clock=options.wall_clock,
            first_reset=first_reset,
        )

    def start(
        self,
        tasks: TaskGroup,
        resets: Collection[PendingReset],
        checks: Collection[PositionCheck],
        now: float,
    ) -> float:
        """Start the look-ups and checks that are due, and return the time of the next call."""
        wake_at = float("inf")
        self.first_offsets.start(tasks)
        if resets:
            wake_at = self._resets.start(tasks, resets, now)
        if checks:
            wake_at = min(wake_at, self.validation.start(tasks, checks, now))
        return wake_at

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        self.validation.keep_only(partitions)
        self.first_offsets.keep_only(partitions)
        self._resets.keep_only(partitions)


def _place(tp: TopicPartition, found: OffsetAndTimestamp) -> str:
    return f"{tp.topic}-{tp.partition} at {found.offset}"


def _log_starts(started: Mapping[str, list[str]]) -> None:
    """Log the offsets of one response in one line for each rule."""
    for rule, places in started.items():
        first, left = ", ".join(places[:MAX_NAMED]), len(places) - MAX_NAMED
        others = f" and {left:,} other partition{'s' * (left > 1)}" if left > 0 else ""
        logger.info("reading starts by %r: %s%s", rule, first, others)
        if others:
            logger.debug("reading starts by %r: %s", rule, ", ".join(places))
