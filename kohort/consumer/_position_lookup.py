"""The lookup of first positions: the committed offset, or else ``_offset_reset_rules``."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio

from kohort.config import ConsumerConfig
from kohort.consumer._cluster_requests import TimeLimit
from kohort.consumer._error_reports import ErrorReports
from kohort.consumer._group_adapter import GroupAdapter
from kohort.consumer._offset_requests import OffsetRequests
from kohort.consumer._offset_reset_rules import FirstPositionRules
from kohort.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    NoOffsetForPartitionError,
    NotAssignedError,
    SecurityError,
)
from kohort.fetcher import Fetcher, denied_topics_error
from kohort.subscription import NO_ID, OffsetReset, SubscriptionState
from kohort.transport import SYSTEM_RNG, Backoff, RepeatedLog
from kohort.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kohort.consumer")

MAX_NAMED_PARTITIONS = 5
"""Maximum number of partitions that an error names."""
FIRST_CHECK_SECONDS, MAX_CHECK_SECONDS = 0.002, 0.1
"""Seconds between checks of a reset in progress. They double from the first to the second."""

FIRST_RETRY_SECONDS = 1.0
MAX_GROUP_RETRY_SECONDS = 10.0
"""Maximum seconds before a retry after the group was denied, the same as for joining."""


class _KnownPosition(NamedTuple):
    """The known state of one partition's position."""

    position: int | None
    epoch: int
    reset: OffsetReset | None
    first: bool
    leaving: bool
    error: KafkaError | None


class PositionFinder:
    """The task that looks up the first positions of assigned partitions."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        rules: FirstPositionRules,
        requests: OffsetRequests,
        fetcher: Fetcher,
        group: GroupAdapter,
        errors: ErrorReports,
        notify: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._rules = rules
        self._requests = requests
        self._fetcher = fetcher
        self._group = group
        self._errors = errors
        self._notify = notify
        self.failure: str | None = None
        """The error of the latest look-up that is repeated, or None."""
        self._repeats = RepeatedLog(logger)
        self._woken = anyio.Event()
        self._has_group = config.group.group_id is not None
        self._longest_pause = config.client.retry_backoff_max_ms / 1000
        max_age = config.client.metadata_max_age_ms / 1000
        self._denied = DeniedPositions(max_age, config.rng or SYSTEM_RNG)

    def wake(self) -> None:
        """Look for partitions without a position now, and fetch those that have one."""
        self._woken.set()
        self._fetcher.wake()

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        while True:
            self._woken = anyio.Event()
            awaiting = self._subscription.awaiting_position()
            missing = self._denied.due(awaiting, anyio.current_time())
            if not missing or self._group.is_assigning:
                # While on_partitions_assigned() runs, due lookups wait. Its end wakes this task.
                pause = anyio.current_time() + FIRST_RETRY_SECONDS
                with anyio.CancelScope(deadline=pause if missing else self._denied.next_due):
                    await self._woken.wait()
                continue
            try:
                await self._look_up(missing, collects=True)
                self.failure = None
                self._repeats.ended(self)
                self._denied.forget_group_denials()
            except GroupAuthorizationFailedError as error:
                self._errors.report_refusal(error)
                await anyio.sleep(self._denied.next_group_pause())
            except KafkaError as error:
                # The cluster client reports security errors of brokers, once each.
                if error.retriable or isinstance(error, SecurityError):
                    self.failure = str(error)
                    text = f"reading the committed offsets failed: {error}"
                    self._repeats.log(self, logging.INFO, text)
                else:
                    self._errors.report(error)
                with anyio.move_on_after(max(self._longest_pause, MAX_CHECK_SECONDS)):
                    await self._woken.wait()

    async def find(self, tp: TopicPartition, timeout: float | None) -> int:
        """Return the position of one partition, also inside a listener.

        Raise NotAssignedError if it is not assigned, or the error that prevents a position. Raise
        KafkaTimeoutError after ``timeout``; None is no limit.
        """
        with TimeLimit(timeout, f"the position of {tp.topic}-{tp.partition} was not found"):
            return await self._find(tp)

    async def _find(self, tp: TopicPartition) -> int:
        pause = FIRST_CHECK_SECONDS
        while True:
            found = self._known_position(tp)
            if found.position is not None:
                return found.position
            if found.leaving:
                return await self._position_of_revoked(tp, found.reset)
            if found.reset is None:
                await self._look_up({tp: found.epoch})
                continue
            rule = self._rules.rule_for(tp) if found.first else found.reset
            if rule == OffsetReset.NONE:
                raise _no_offset_error(tp)
            if found.error is not None and not found.error.retriable:
                raise found.error
            # The fetcher does the reset.
            self._fetcher.wake()
            await anyio.sleep(pause)
            pause = min(2 * pause, MAX_CHECK_SECONDS)

    def _known_position(self, tp: TopicPartition) -> _KnownPosition:
        subscription = self._subscription
        with subscription.lock:
            state = subscription.partition(tp)
            if state is None:
                raise NotAssignedError(f"{tp.topic}-{tp.partition} is not assigned")
            return _KnownPosition(
                state.position,
                state.epoch,
                state.reset,
                state.is_first,
                state.is_leaving,
                state.status.last_error,
            )

    async def _position_of_revoked(self, tp: TopicPartition, reset: OffsetReset | None) -> int:
        """Return the first position of a partition that is revoked before it had one."""
        committed = await self._committed([tp])
        at = committed.get(tp)
        if at is not None and reset is None:
            return at.offset
        default = self._subscription.default_reset
        strategy = reset or self._rules.rule_for(tp) or default
        if strategy == OffsetReset.NONE:
            raise _no_offset_error(tp)
        return await self._requests.reset_offset(tp, strategy)

    async def _committed(
        self, partitions: list[TopicPartition], denied: set[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if not self._has_group:
            return {}
        return await self._requests.committed(partitions, None, denied=denied)

    def _report_denied(self, news: set[TopicPartition]) -> None:
        topics = {tp.topic for tp in news}
        names = ", ".join(
            f"{tp.topic}-{tp.partition}" for tp in sorted(news)[:MAX_NAMED_PARTITIONS]
        )
        where = f"reading the committed offsets of {names}"
        self._errors.report_refusal(denied_topics_error(where, topics, "DESCRIBE"))

    async def _look_up(self, missing: dict[TopicPartition, int], *, collects: bool = False) -> None:
        """Find positions. ``collects``: report refused ones instead of raising an error."""
        subscription = self._subscription
        # The ids are read before the request, to detect topics that are recreated meanwhile.
        ids = subscription.topic_ids(missing)
        denied: set[TopicPartition] = set()
        committed = await self._committed(list(missing), denied if collects else None)
        now, history = anyio.current_time(), subscription.history
        news = {tp for tp in denied if self._denied.note_denial(tp, missing[tp], now)}
        if news:
            self._report_denied(news)
        for tp, epoch in missing.items():
            at = committed.get(tp)
            if tp in denied:
                continue  # its position stays unknown until the next lookup
            if history.current_id(tp.topic) != ids[tp] != NO_ID:
                continue  # recreated meanwhile, so the next lookup requests it again
            if at is not None:
                topic_id = history.confirmed_id(tp.topic)
                subscription.set_position(
                    tp, at.offset, at.leader_epoch, epoch=epoch, topic_id=topic_id
                )
            else:
                subscription.reset_if_unknown(tp, epoch=epoch)
        self._fetcher.wake()
        self._notify()  # start() may be waiting for it


def _no_offset_error(tp: TopicPartition) -> NoOffsetForPartitionError:
    return NoOffsetForPartitionError(
        f"{tp.topic}-{tp.partition} has no first position: there is no committed offset, and "
        f'auto_offset_reset is "none". Call seek({tp}, ...), or commit an offset first',
        topic_partition=tp,
    )


class _DeniedPosition(NamedTuple):
    epoch: int
    failures: int
    at: float


class DeniedPositions:
    """The retry times of denied partitions, with pauses that double from 1 s to ``max_seconds``."""

    def __init__(self, max_seconds: float, rng: random.Random) -> None:
        self._backoff = Backoff(min(FIRST_RETRY_SECONDS, max_seconds), max_seconds)
        self._rng = rng
        self._denied: dict[TopicPartition, _DeniedPosition] = {}
        self._group_failures = 0

    @property
    def next_due(self) -> float:
        """Time of the next retry of any partition; infinity if there are none."""
        return min((each.at for each in self._denied.values()), default=math.inf)

    def due(self, missing: Mapping[TopicPartition, int], now: float) -> dict[TopicPartition, int]:
        """Return the partitions, with their epochs, that may be requested now."""
        for tp, known in list(self._denied.items()):
            if missing.get(tp) != known.epoch:
                del self._denied[tp]
        return {
            tp: epoch
            for tp, epoch in missing.items()
            if tp not in self._denied or self._denied[tp].at <= now
        }

    def note_denial(self, tp: TopicPartition, epoch: int, now: float) -> bool:
        """Note a denial. Return True if it is the partition's first."""
        known = self._denied.get(tp)
        failures = 1 if known is None else known.failures + 1
        at = now + self._backoff.delay(failures, self._rng)
        self._denied[tp] = _DeniedPosition(epoch, failures, at)
        return known is None

    def next_group_pause(self) -> float:
        """Return the seconds to wait after the whole group was denied once more."""
        self._group_failures += 1
        longest = min(MAX_GROUP_RETRY_SECONDS, max(self._backoff.maximum, FIRST_RETRY_SECONDS))
        return Backoff(FIRST_RETRY_SECONDS, longest).delay(self._group_failures, self._rng)

    def forget_group_denials(self) -> None:
        """Reset the pause for the group after a success."""
        self._group_failures = 0
