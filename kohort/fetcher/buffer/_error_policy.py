"""The handling of data that cannot be read: ``on_error``.

A drain calls it on the caller's thread, and only for these data:

* a corrupt batch,
* a record whose deserializer raises,
* a batch that is larger than any response may be.

A corrupt batch is fetched once more before the policy applies. The network or a former leader may
have caused the error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, TypeAlias

from kohort.errors import (
    CorruptBatchError,
    DataError,
    DecompressionBudgetError,
    DeserializerNotReadyError,
    InvalidOptionError,
    RecordDeserializationError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kohort.fetcher.buffer._completed import CompletedFetch, FailedFetch
from kohort.logs import get_logger
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import NamedTuple, TopicPartition

logger = get_logger("kohort.fetcher")

OnError: TypeAlias = str | Callable[[DataError], Any]
Item: TypeAlias = CompletedFetch | FailedFetch

_POLICY_ERRORS = (CorruptBatchError, RecordDeserializationError, RecordTooLargeError)
_NEVER_REFETCHED = (UnsupportedCodecError, DecompressionBudgetError)
"""Errors of batches as they were written. Another fetch would return the same bytes."""


class PolicyAction(Enum):
    """The values that ``on_error`` may have or return."""

    RAISE = "raise"
    SKIP = "skip"
    PAUSE = "pause"


class PolicyCounters:
    """Counters since the start of the consumer."""

    __slots__ = ("batches_skipped", "bytes_skipped", "pauses", "records_skipped")

    def __init__(self) -> None:
        self.records_skipped: int = 0
        self.batches_skipped: int = 0
        self.bytes_skipped: int = 0
        self.pauses: int = 0


class _Decision(NamedTuple):
    """The decision about one error until it is applied.

    ``error`` is the exception to raise if the action is RAISE.
    """

    epoch: int
    offset: int | None
    action: PolicyAction
    error: Exception


class ErrorPolicy:
    """The ``on_error`` policy of one consumer. Only the thread that drains calls it.

    ``on_room`` is called when a partition must be fetched again.
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

    def try_skip(self, fetch: CompletedFetch, *, repeat: bool) -> bool:
        """Skip the record that does not deserialize, and return True if the policy allows it.

        ``repeat``: an error that was raised before may be raised again.
        """
        error = fetch.error
        if not self._active or not isinstance(error, RecordDeserializationError):
            return False
        if _is_not_ready(error):
            return False
        if self._decide(fetch, error, repeat) is not PolicyAction.SKIP:
            return False
        self._log_skip(error, error.next_offset)
        # skip() makes its changes in one run of statements (see consumer/driver/_delivery).
        fetch.skip()
        self.counters.records_skipped += 1
        self.counters.bytes_skipped += len(error.raw or b"")
        self._decisions.pop(fetch.topic_partition, None)
        return True

    def try_resolve(
        self, item: Item, delivered: Collection[TopicPartition], *, repeat: bool
    ) -> bool:
        """Apply the policy to the error of an item, and return False if it must be raised.

        If records of the partition were delivered, a later drain applies the policy.
        """
        error, tp = item.error, item.topic_partition
        if (
            not self._active
            or not isinstance(error, _POLICY_ERRORS)
            or not isinstance(error, DataError)
            or _is_not_ready(error)
        ):
            return False
        if tp in delivered:
            return True
        if isinstance(item, CompletedFetch) and self._refetches(item, error):
            return True
        match self._decide(item, error, repeat):
            case PolicyAction.SKIP if isinstance(item, CompletedFetch):
                self._skip(item, error)
            case PolicyAction.SKIP if isinstance(item, FailedFetch) and item.oversized:
                if error.next_offset is None:
                    self._pause(item, error)
                else:
                    self._skip_unread(item, item.oversized.size, error, error.next_offset)
            case PolicyAction.PAUSE:
                self._pause(item, error)
            case _:  # a batch that was not received cannot be skipped
                return False
        self._decisions.pop(tp, None)
        return True

    def error_to_raise(self, item: Item) -> Exception:
        """Return the exception to raise for an item, and forget the decision."""
        assert item.error is not None
        decision = self._decisions.pop(item.topic_partition, None)
        if decision is not None and decision.epoch == item.epoch:
            return decision.error
        return item.error

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the decisions about partitions without buffered items."""
        if self._decisions:
            for tp in partitions:
                self._decisions.pop(tp, None)

    def _decide(self, item: Item, error: DataError, repeat: bool) -> PolicyAction:
        if item.raised and not repeat:
            return PolicyAction.RAISE  # the caller has seen the error, so it is not raised now
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
        logger.info("%s-%d: the corrupt batch at offset %s is fetched again", *tp, error.offset)
        self._on_room()
        return True

    def _skip(self, fetch: CompletedFetch, error: DataError) -> None:
        with self._subscription.lock:
            state = self._current(fetch)
            if state is None or state.position is None:
                return
            next_offset = _offset_after(error, state.position, fetch.watermarks.high_watermark)
            self.counters.batches_skipped += 1
            if next_offset == error.next_offset:  # otherwise the bytes include later batches
                self.counters.bytes_skipped += len(error.raw or b"")
            self._subscription.skip_to(state, next_offset)
        self._log_skip(error, next_offset)
        self._on_room()

    def _skip_unread(
        self, item: FailedFetch, size: int | None, error: DataError, next_offset: int
    ) -> None:
        """Skip a batch of which only the header was received."""
        with self._subscription.lock:
            state = self._current(item)
            if state is None or state.position is None:
                return
            # The high watermark is older than the header, so it cannot check the next offset.
            next_offset = max(next_offset, state.position + 1)
            self.counters.batches_skipped += 1
            self.counters.bytes_skipped += size or 0
            self._subscription.skip_to(state, next_offset)
        logger.warning(
            "%s-%d: skipped the batch of %s bytes at offset %s. The next offset is %d. Cause: %s",
            *item.topic_partition,
            size,
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
            # After resume() the batch is fetched again.
            self._subscription.refetch_from(state)
            state.paused_by |= {None}  # resume() of the program ends it
            state.status.last_error = error
            self.counters.pauses += 1
        logger.error(
            "%s-%d is paused at offset %s until resume(). %s: %s",
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
        is_end_known = error.next_offset == next_offset
        logger.warning(
            "%s-%d: skipped %d bytes at offset %s%s. The next offset is %s. %s: %s",
            *error.topic_partition,
            len(error.raw or b""),
            error.offset,
            "" if is_end_known else ", and the end of the batch is unknown",
            next_offset,
            type(error).__name__,
            error.reason,
        )


def _is_not_ready(error: Exception | None) -> bool:
    """True if the record does not deserialize because the deserializer needs I/O first."""
    return error is not None and isinstance(error.__cause__, DeserializerNotReadyError)


def _offset_after(error: DataError, position: int, high_watermark: int) -> int:
    """Return the offset after a batch that cannot be read.

    The offset in the corrupt bytes may be wrong. An offset after the end of the log would reset
    the consumer, so the next offset is used then. The broker returns the batch that contains this
    offset, so no readable record is skipped.
    """
    next_offset = error.next_offset
    if next_offset is None or next_offset <= position or 0 <= high_watermark < next_offset:
        return position + 1
    return next_offset
