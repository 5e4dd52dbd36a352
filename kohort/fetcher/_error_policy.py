"""What is done about data that cannot be read: ``on_error``.

It is asked on the caller's thread, inside of a drain, and only of what came and cannot be read (a
corrupt batch, a record whose deserializer raises) or does not come at all (a batch larger than any
answer). A corrupt batch is fetched once more before it is given up: what was wrong may have been
the way here, or a replica that does not lead any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from kohort.errors import (
    CorruptBatchError,
    DataError,
    DecompressionBudgetError,
    InvalidOptionError,
    RecordDeserializationError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kohort.fetcher._completed import CompletedFetch, FailedFetch
from kohort.fetcher._oversized import OversizedFetch
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.fetcher")

OnError: TypeAlias = str | Callable[[DataError], Any]
Item: TypeAlias = CompletedFetch | FailedFetch

_POLICY_ERRORS = (CorruptBatchError, RecordDeserializationError, RecordTooLargeError)
_NEVER_REFETCHED = (UnsupportedCodecError, DecompressionBudgetError)
"""The bytes are what was written: to fetch them again would change nothing."""


class PolicyAction(Enum):
    """What ``on_error`` may say."""

    RAISE = "raise"
    SKIP = "skip"
    PAUSE = "pause"


class PolicyCounters:
    """What was done since the start."""

    __slots__ = ("batches_skipped", "bytes_skipped", "pauses", "records_skipped")

    def __init__(self) -> None:
        self.records_skipped: int = 0
        self.batches_skipped: int = 0
        self.bytes_skipped: int = 0
        self.pauses: int = 0


class _Decision(NamedTuple):
    """Of one error, until it is carried out; ``error`` is what to raise if that is what it says."""

    epoch: int
    offset: int | None
    action: PolicyAction
    error: Exception


class ErrorPolicy:
    """Carries ``on_error`` out for one consumer. Called by the thread that drains alone.

    ``on_room`` is called when a partition is to be fetched anew.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        on_error: OnError = "raise",
        *,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.counters: PolicyCounters = PolicyCounters()
        self._subscription = subscription
        self._on_error = on_error
        self._on_room = on_room
        self._active = on_error != PolicyAction.RAISE.value
        self._decisions: dict[TopicPartition, _Decision] = {}
        self._refetched_at: dict[TopicPartition, int] = {}

    def skips(self, fetch: CompletedFetch, *, repeat: bool) -> bool:
        """True if the fetch stopped at a record that does not deserialize, and goes on behind it.

        ``repeat``: an error that was raised before may be raised again.
        """
        error = fetch.error
        if not self._active or not isinstance(error, RecordDeserializationError):
            return False
        if self._decide(fetch, error, repeat) is not PolicyAction.SKIP:
            return False
        self._log_skip(error, error.next_offset)
        # Nothing is called between these: signal handlers run in calls.
        fetch.skip()
        self.counters.records_skipped += 1
        self.counters.bytes_skipped += len(error.raw or b"")
        self._decisions.pop(fetch.topic_partition, None)
        return True

    def resolves(self, item: Item, delivered: Collection[TopicPartition], *, repeat: bool) -> bool:
        """True if the error that an item stopped at needs not be raised: it is dealt with, or will
        be by a later drain, when what comes before it is handed out.
        """
        error, tp = item.error, item.topic_partition
        if (
            not self._active
            or not isinstance(error, _POLICY_ERRORS)
            or not isinstance(error, DataError)
        ):
            return False
        if tp in delivered:
            return True
        if isinstance(item, CompletedFetch) and self._refetches(item, error):
            return True
        match self._decide(item, error, repeat):
            case PolicyAction.SKIP if isinstance(item, CompletedFetch):
                self._skip(item, error)
            case PolicyAction.SKIP if (
                isinstance(item, OversizedFetch) and error.next_offset is not None
            ):
                self._skip_unread(item, error, error.next_offset)
            case PolicyAction.SKIP if isinstance(item, OversizedFetch):
                self._pause(item, error)
            case PolicyAction.PAUSE:
                self._pause(item, error)
            case _:  # what did not come cannot be skipped
                return False
        self._decisions.pop(tp, None)
        return True

    def error_to_raise(self, item: Item) -> Exception:
        """What to raise for an item; the next time it is asked anew."""
        assert item.error is not None
        decision = self._decisions.pop(item.topic_partition, None)
        if decision is not None and decision.epoch == item.epoch:
            return decision.error
        return item.error

    def forget(self, tp: TopicPartition) -> None:
        """Nothing of the partition is in the buffer any more."""
        self._decisions.pop(tp, None)

    def _decide(self, item: Item, error: DataError, repeat: bool) -> PolicyAction:
        if item.raised and not repeat:
            return PolicyAction.RAISE  # and it will not be: whoever waits has been told
        tp, epoch, offset = item.topic_partition, item.epoch, error.offset
        decision = self._decisions.get(tp)
        if decision is None or decision[:2] != (epoch, offset):
            action, raised_error = self._call_on_error(error)
            decision = self._decisions[tp] = _Decision(epoch, offset, action, raised_error)
        return decision.action

    def _call_on_error(self, error: DataError) -> tuple[PolicyAction, Exception]:
        if isinstance(self._on_error, str):
            return PolicyAction(self._on_error), error
        try:
            returned = self._on_error(error)
        except Exception as raised:
            return PolicyAction.RAISE, raised
        try:
            return PolicyAction(returned), error
        except ValueError:
            wrong = InvalidOptionError(
                f'on_error returned {returned!r}: expected "raise", "skip" or "pause"'
            )
            wrong.__cause__ = error
            return PolicyAction.RAISE, wrong

    def _refetches(self, fetch: CompletedFetch, error: DataError) -> bool:
        tp = fetch.topic_partition
        if not isinstance(error, CorruptBatchError) or isinstance(error, _NEVER_REFETCHED):
            return False
        with self._subscription.lock:
            state = self._current(fetch)
            if state is None or state.position is None:
                return True
            if self._refetched_at.get(tp) == state.position:
                return False
            self._refetched_at[tp] = state.position
            self._subscription.refetch_from(state)
        logger.info("%s-%d at offset %s is corrupt: fetched once more", *tp, error.offset)
        self._on_room()
        return True

    def _skip(self, fetch: CompletedFetch, error: DataError) -> None:
        with self._subscription.lock:
            state = self._current(fetch)
            if state is None or state.position is None:
                return
            next_offset = _offset_after(error, state.position, fetch.high_watermark)
            self.counters.batches_skipped += 1
            if next_offset == error.next_offset:  # else these are of others, too
                self.counters.bytes_skipped += len(error.raw or b"")
            self._subscription.skip_to(state, next_offset)
        self._log_skip(error, next_offset)
        self._on_room()

    def _skip_unread(self, item: OversizedFetch, error: DataError, next_offset: int) -> None:
        """Pass over a batch of which only the header came."""
        with self._subscription.lock:
            state = self._current(item)
            if state is None or state.position is None:
                return
            # The high watermark is older than the header, so it does not show the end.
            next_offset = max(next_offset, state.position + 1)
            self.counters.batches_skipped += 1
            self.counters.bytes_skipped += item.size_in_bytes or 0
            self._subscription.skip_to(state, next_offset)
        logger.warning(
            "%s-%d: skipped the batch of %s bytes at offset %s, going on at %d: %s",
            *item.topic_partition,
            item.size_in_bytes,
            error.offset,
            next_offset,
            error.reason,
        )
        self._on_room()

    def _pause(self, item: Item, error: DataError) -> None:
        tp = item.topic_partition
        with self._subscription.lock:
            state = self._current(item)
            if state is None:
                return
            # resume() is to try again, with bytes that are fetched then.
            self._subscription.refetch_from(state)
            state.paused = True
            state.last_error = error
            self.counters.pauses += 1
        logger.error(
            "%s-%d is paused at offset %s until resume(): %s: %s",
            *tp,
            error.offset,
            type(error).__name__,
            error.reason,
            exc_info=error.__cause__,
        )

    def _current(self, item: Item) -> PartitionState | None:
        state = self._subscription.partition_at(item.topic_partition, item.epoch)
        return state if state is not None and state.is_deliverable else None

    def _log_skip(self, error: DataError, next_offset: int | None) -> None:
        assert error.topic_partition is not None
        is_end_known = error.next_offset == next_offset
        logger.warning(
            "%s-%d: skipped what is at offset %s, %s%d bytes; going on at %s: %s: %s",
            *error.topic_partition,
            error.offset,
            "" if is_end_known else "where it ends in these cannot be told: ",
            len(error.raw or b""),
            next_offset,
            type(error).__name__,
            error.reason,
        )


def _offset_after(error: DataError, position: int, high_watermark: int) -> int:
    """Where to go on behind a batch that cannot be read.

    An offset that the bytes name may be a lie of theirs. Behind the end of the log it would have
    the consumer reset, so the next offset is asked for then: a broker answers that with the batch
    that has it, so nothing that can be read is passed over.
    """
    next_offset = error.next_offset
    if next_offset is None or next_offset <= position or 0 <= high_watermark < next_offset:
        return position + 1
    return next_offset
