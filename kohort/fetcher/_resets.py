"""Positions that a rule gives: looked up while their partitions wait."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio

from kohort.errors import KafkaError, NoOffsetForPartitionError
from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._completed import FailedFetch
from kohort.fetcher._errors import Failure, Then
from kohort.fetcher._failure_reports import Refusals
from kohort.fetcher._leaders import Leaders
from kohort.fetcher._offsets import EARLIEST, LATEST, OffsetLookup, no_leader
from kohort.fetcher._recreated import recreated_error
from kohort.fetcher._retries import Retries
from kohort.subscription import NO_ID, OffsetReset, PendingReset, SubscriptionState
from kohort.transport import start_soon
from kohort.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = logging.getLogger("kohort.fetcher")

NAMED = 5
"""Partitions that a line names at most."""
_TIMESTAMPS = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}


def reset_timestamp(strategy: OffsetReset, now: float) -> int:
    """What to ask ListOffsets for; ``now`` in seconds since 1970. KeyError for "none"."""
    if strategy.duration_ms is None:
        return _TIMESTAMPS[strategy]
    return max(0, int(now * 1000) - strategy.duration_ms)


class PositionResets:
    """Looks up the positions of the partitions that wait for one, one request per leader."""

    def __init__(
        self,
        leaders: Leaders,
        subscription: SubscriptionState,
        offsets: OffsetLookup,
        buffer: FetchBuffer,
        retries: Retries[TopicPartition],
        refusals: Refusals,
        *,
        on_found: Callable[[], None],
        on_position: Callable[[TopicPartition, int, int], None],
        on_ready: Callable[[], None],
        timestamp: Callable[[OffsetReset], int],
        first_reset: Callable[[TopicPartition], OffsetReset | None],
    ) -> None:
        self._leaders = leaders
        self._subscription = subscription
        self._offsets = offsets
        self._buffer = buffer
        self._retries = retries
        self._refusals = refusals
        self._on_found = on_found
        self._on_position = on_position
        self._on_ready = on_ready
        self._timestamp = timestamp
        self._first_reset = first_reset
        self._asked: set[tuple[TopicPartition, int]] = set()
        self._told: dict[TopicPartition, int] = {}

    def start(self, tasks: TaskGroup, resets: Iterable[PendingReset], now: float) -> float:
        """Ask for whatever is due of these; returns when to come again."""
        come_again = float("inf")
        by_node: dict[int, dict[TopicPartition, PendingReset]] = defaultdict(dict)
        for pending in resets:
            tp, epoch = pending.topic_partition, pending.epoch
            strategy = self._first_reset(tp) if pending.first else pending.strategy
            if strategy == OffsetReset.NONE:
                self._tell(pending)
            elif (tp, epoch) not in self._asked:
                not_before = self._retries.not_before(tp, epoch)
                if strategy is None or (leader := self._leaders.find(tp)) is None:
                    come_again = min(come_again, self._leaders.search(tp, now))
                elif not_before > now:
                    come_again = min(come_again, not_before)
                else:
                    by_node[leader.node][tp] = pending._replace(strategy=strategy)
        for node, asked in by_node.items():
            self._asked.update((tp, pending.epoch) for tp, pending in asked.items())
            epochs = {tp: leader.epoch for tp in asked if (leader := self._leaders.find(tp))}
            start_soon(tasks, self._look_up, node, asked, epochs)
        return come_again

    async def _look_up(
        self,
        node: int,
        asked: Mapping[TopicPartition, PendingReset],
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        try:
            wanted = {tp: self._timestamp(pending.strategy) for tp, pending in asked.items()}
            # Where nothing is as young, the end is meant. It is asked for first, so that what is
            # written in between is not passed over.
            by_time = {tp: LATEST for tp, timestamp in wanted.items() if timestamp >= 0}
            ends = await self._offsets.ask(node, by_time) if by_time else {}
            results = await self._offsets.ask(node, wanted)
            results.update({tp: end for tp, end in ends.items() if results[tp] is None})
        except Exception as error:
            # A bug, but no reason to take the other partitions down with it.
            logger.exception("looking up offsets at broker %d failed", node)
            failure = Failure(KafkaError(f"looking up offsets failed: {error!r}"), Then.RAISE)
            results = dict.fromkeys(asked, failure)
        finally:
            self._asked.difference_update((tp, pending.epoch) for tp, pending in asked.items())
        now = anyio.current_time()
        started: dict[str, list[str]] = defaultdict(list)
        for tp, found in results.items():
            pending = asked[tp]
            if not isinstance(found, OffsetAndTimestamp):
                self._fail(pending, found or no_leader(tp), now)
            elif self._found(pending, found, epochs[tp]):
                started[pending.strategy.value].append(
                    f"{tp.topic}-{tp.partition} at {found.offset}"
                )
        _log_starts(started)
        self._on_found()

    def _found(self, pending: PendingReset, found: OffsetAndTimestamp, under: int) -> bool:
        """Take a position; False if it is not wanted any longer."""
        tp, epoch = pending.topic_partition, pending.epoch
        self._retries.succeeded(tp)
        if self._subscription.set_position(
            tp, found.offset, found.leader_epoch, epoch=epoch, topic_id=pending.topic_id
        ):
            self._on_position(tp, epoch, under)
            self._on_ready()  # start() may be waiting for it
            return True
        return False

    def _fail(self, pending: PendingReset, failure: Failure, now: float) -> None:
        tp, epoch = pending.topic_partition, pending.epoch
        if failure.then is Then.REFUSE:
            if self._refusals.refused(tp, epoch, failure.error, self._retries, now):
                self._on_ready()
            return
        if failure.then is not Then.RETRY:
            failed = FailedFetch(tp, epoch, failure.error, passing=True)
            if self._buffer.append(failed):
                self._on_ready()
        self._retries.failed(tp, now, epoch)

    def _tell(self, pending: PendingReset) -> None:
        tp, epoch = pending.topic_partition, pending.epoch
        if self._told.get(tp) == epoch:
            return
        self._told[tp] = epoch
        history = self._subscription.history
        old, now = history.last_read(tp), history.of(tp.topic)
        error: KafkaError = NoOffsetForPartitionError(
            f"{tp.topic}-{tp.partition} has no committed offset to start at, and "
            f'auto_offset_reset is "none": seek({tp}, ...), seek_to_beginning({tp}) or '
            "seek_to_end(...), or commit an offset first",
            topic_partition=tp,
        )
        if NO_ID not in (old, now) and old != now:
            error = recreated_error(tp, None, old, now)
        if self._buffer.append(FailedFetch(tp, epoch, error, passing=False)):
            self._on_ready()


def _log_starts(started: Mapping[str, list[str]]) -> None:
    """Log the offsets of one response, a line for each rule."""
    for rule, places in started.items():
        first, left = ", ".join(places[:NAMED]), len(places) - NAMED
        others = f" and {left:,} other partition{'s' * (left > 1)}" if left > 0 else ""
        logger.info("reading starts by %r: %s%s", rule, first, others)
        if others:
            logger.debug("reading starts by %r: %s", rule, ", ".join(places))
