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

_CONCERNED = (CorruptBatchError, RecordDeserializationError, RecordTooLargeError)
_SURE = (UnsupportedCodecError, DecompressionBudgetError)
"""The bytes are what was written: to fetch them again would change nothing."""


class Action(Enum):
    """What ``on_error`` may say."""

    RAISE = "raise"
    SKIP = "skip"
    PAUSE = "pause"


class PolicyCounters:
    """What was done since the start."""

    __slots__ = ("batches_skipped", "bytes_skipped", "pauses", "records_skipped")

    def __init__(self) -> None:
        self.records_skipped = 0
        self.batches_skipped = 0
        self.bytes_skipped = 0
        self.pauses = 0


class _Verdict(NamedTuple):
    """Of one error, until it is carried out; ``error`` is what to raise if that is what it says."""

    epoch: int
    offset: int | None
    action: Action
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
        self.counters = PolicyCounters()
        self._subscription = subscription
        self._on_error = on_error
        self._on_room = on_room
        self._active = on_error != Action.RAISE.value
        self._verdicts: dict[TopicPartition, _Verdict] = {}
        self._read_again: dict[TopicPartition, int] = {}

    def passes(self, fetch: CompletedFetch, *, repeat: bool) -> bool:
        """True if the fetch stopped at a record that does not deserialize, and goes on behind it.

        ``repeat``: an error that was raised before may be raised again.
        """
        error = fetch.error
        if not self._active or not isinstance(error, RecordDeserializationError):
            return False
        if self._decide(fetch, error, repeat) is not Action.SKIP:
            return False
        self._log_skip(error, error.next_offset)
        # Nothing is called between these: signal handlers run in calls.
        fetch.skip()
        self.counters.records_skipped += 1
        self.counters.bytes_skipped += len(error.raw or b"")
        self._verdicts.pop(fetch.topic_partition, None)
        return True

    def settles(self, item: Item, delivered: Collection[TopicPartition], *, repeat: bool) -> bool:
        """True if the error that an item stopped at needs not be raised: it is dealt with, or will
        be by a later drain, when what comes before it is handed out.
        """
        error, tp = item.error, item.topic_partition
        if (
            not self._active
            or not isinstance(error, _CONCERNED)
            or not isinstance(error, DataError)
        ):
            return False
        if tp in delivered:
            return True
        if isinstance(item, CompletedFetch) and self._reads_again(item, error):
            return True
        match self._decide(item, error, repeat):
            case Action.SKIP if isinstance(item, CompletedFetch):
                self._skip(item, error)
            case Action.SKIP if isinstance(item, OversizedFetch) and error.next_offset is not None:
                self._skip_unread(item, error, error.next_offset)
            case Action.SKIP if isinstance(item, OversizedFetch):
                self._pause(item, error)
            case Action.PAUSE:
                self._pause(item, error)
            case _:  # what did not come cannot be skipped
                return False
        self._verdicts.pop(tp, None)
        return True

    def to_raise(self, item: Item) -> Exception:
        """What to raise for an item; the next time it is asked anew."""
        assert item.error is not None
        verdict = self._verdicts.pop(item.topic_partition, None)
        if verdict is not None and verdict.epoch == item.epoch:
            return verdict.error
        return item.error

    def forget(self, tp: TopicPartition) -> None:
        """Nothing of the partition is in the buffer any more."""
        self._verdicts.pop(tp, None)

    def _decide(self, item: Item, error: DataError, repeat: bool) -> Action:
        if item.raised and not repeat:
            return Action.RAISE  # and it will not be: whoever waits has been told
        tp, epoch, offset = item.topic_partition, item.epoch, error.offset
        verdict = self._verdicts.get(tp)
        if verdict is None or verdict[:2] != (epoch, offset):
            action, instead = self._ask(error)
            verdict = self._verdicts[tp] = _Verdict(epoch, offset, action, instead)
        return verdict.action

    def _ask(self, error: DataError) -> tuple[Action, Exception]:
        if isinstance(self._on_error, str):
            return Action(self._on_error), error
        try:
            answer = self._on_error(error)
        except Exception as raised:
            return Action.RAISE, raised
        try:
            return Action(answer), error
        except ValueError:
            wrong = InvalidOptionError(
                f'on_error returned {answer!r}: expected "raise", "skip" or "pause"'
            )
            wrong.__cause__ = error
            return Action.RAISE, wrong

    def _reads_again(self, fetch: CompletedFetch, error: DataError) -> bool:
        tp = fetch.topic_partition
        if not isinstance(error, CorruptBatchError) or isinstance(error, _SURE):
            return False
        with self._subscription.lock:
            state = self._current(fetch)
            if state is None or state.position is None:
                return True
            if self._read_again.get(tp) == state.position:
                return False
            self._read_again[tp] = state.position
            self._subscription.refetch_from(state)
        logger.info("%s-%d at offset %s is corrupt: fetched once more", *tp, error.offset)
        self._on_room()
        return True

    def _skip(self, fetch: CompletedFetch, error: DataError) -> None:
        with self._subscription.lock:
            state = self._current(fetch)
            if state is None or state.position is None:
                return
            behind = _end_of(error, state.position, fetch.high_watermark)
            self.counters.batches_skipped += 1
            if behind == error.next_offset:  # else these are of others, too
                self.counters.bytes_skipped += len(error.raw or b"")
            self._subscription.skip_to(state, behind)
        self._log_skip(error, behind)
        self._on_room()

    def _skip_unread(self, item: OversizedFetch, error: DataError, behind: int) -> None:
        """Pass over a batch of which only the header came."""
        with self._subscription.lock:
            state = self._current(item)
            if state is None or state.position is None:
                return
            # The high watermark is older than the header, so it does not show the end.
            behind = max(behind, state.position + 1)
            self.counters.batches_skipped += 1
            self.counters.bytes_skipped += item.size_in_bytes or 0
            self._subscription.skip_to(state, behind)
        logger.warning(
            "%s-%d: skipped the batch of %s bytes at offset %s, going on at %d: %s",
            *item.topic_partition,
            item.size_in_bytes,
            error.offset,
            behind,
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
        state = self._subscription.current(item.topic_partition, item.epoch)
        return state if state is not None and state.deliverable else None

    def _log_skip(self, error: DataError, behind: int | None) -> None:
        assert error.topic_partition is not None
        told = error.next_offset == behind
        logger.warning(
            "%s-%d: skipped what is at offset %s, %s%d bytes; going on at %s: %s: %s",
            *error.topic_partition,
            error.offset,
            "" if told else "where it ends in these cannot be told: ",
            len(error.raw or b""),
            behind,
            type(error).__name__,
            error.reason,
        )


def _end_of(error: DataError, position: int, high_watermark: int) -> int:
    """Where to go on behind a batch that cannot be read.

    An offset that the bytes name may be a lie of theirs. Behind the end of the log it would have
    the consumer reset, so the next offset is asked for then: a broker answers that with the batch
    that has it, so nothing that can be read is passed over.
    """
    behind = error.next_offset
    if behind is None or behind <= position or 0 <= high_watermark < behind:
        return position + 1
    return behind
