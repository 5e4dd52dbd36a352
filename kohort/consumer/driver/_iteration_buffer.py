"""The buffer of iteration, and the number of records that are drained into it at a time.

It returns records one by one and moves positions with them. One Ctrl-C at any step loses no record
(see _delivery). No record is dropped from the buffer, and no position moves past a record that was
not returned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from kohort.fetcher import Records
from kohort.records import ConsumerRecord, RecordRun
from kohort.subscription import PartitionRun, PartitionState, SubscriptionState
from kohort.types import TopicPartition

YIELD_SECONDS = 0.01
"""Seconds between two yields to the event loop while records are read.

The event loop runs a timer one iteration after the iteration that finds it due. So a timeout is
late by at most two of these intervals and one clock tick. One yield costs about 20 us."""
POLLS_AT_ONCE = 4
"""Factor of ``max_poll_records`` for one drain of iteration. A drain costs about 20 us."""
DRAIN_BYTES = 512 << 10
"""Maximum bytes of keys and values in one drain. More would not stay in the CPU caches."""
MIN_RECORDS = 50
"""Minimum number of records in one drain, regardless of their size."""
MAX_GROWTH = 10
"""Maximum factor between one drain and the next."""


class DrainSize:
    """The number of records for the next drain, as :attr:`count`.

    It adapts so that the records of one drain have at most :data:`DRAIN_BYTES`, which stay in the
    CPU caches. With ``timed``, one drain takes at most :data:`YIELD_SECONDS`. This is for
    deserializers that run in an event loop. :attr:`maximum` is the upper bound of the count.
    """

    __slots__ = ("_timed", "count", "maximum")

    def __init__(self, max_poll_records: int, *, deserializes: bool, timed: bool) -> None:
        factor = 1 if deserializes else POLLS_AT_ONCE
        self.maximum = min(factor * max_poll_records, 2**31 - 1)
        self._timed = deserializes and timed
        self.count = 1 if self._timed else min(self.maximum, max_poll_records)

    def adapt(
        self, drained: Collection[list[ConsumerRecord[Any, Any]]], seconds: float = 0.0
    ) -> None:
        """Adapt the count to the records of a drain, by partition, and to its duration."""
        count = sum(map(len, drained))
        if not count:
            return
        size = sum(_size(records[-1]) * len(records) for records in drained)
        fitting = max(MIN_RECORDS, count * DRAIN_BYTES // max(size, 1))
        if self._timed:
            in_time = int(count * YIELD_SECONDS / max(seconds, 1e-9))
            fitting = min(fitting, in_time, MAX_GROWTH * self.count)
        self.count = max(1, min(fitting, self.maximum))


def _size(record: ConsumerRecord[Any, Any]) -> int:
    return max(0, record.serialized_key_size) + max(0, record.serialized_value_size)


RUN_SECONDS = 0.01
"""Seconds for which iteration returns records without a check of the group's session."""


class _BufferedPartition:
    """The records of one partition. Those before ``index`` were returned.

    ``end`` is the position after the last record.
    """

    __slots__ = ("end", "epoch", "index", "records", "topic_partition")

    def __init__(
        self, tp: TopicPartition, epoch: int, records: list[ConsumerRecord[Any, Any]], end: int
    ) -> None:
        self.topic_partition = tp
        self.epoch = epoch
        self.records = records
        self.index = 0
        self.end = end

    @property
    def is_exhausted(self) -> bool:
        """True if all records were returned."""
        return self.index == len(self.records)

    def take(self, state: PartitionState, count: int) -> list[ConsumerRecord[Any, Any]]:
        """Return the next records and move the position after them."""
        records = self.records
        index = min(self.index + count, len(records))
        given = records[self.index : index]
        position = records[index].offset if index < len(records) else self.end
        epoch = given[-1].leader_epoch
        # No call follows, so Ctrl-C cannot come between (see _delivery, rule 3).
        self.index, state.position, state.leader_epoch = index, position, epoch
        return given


class IterationBuffer:
    """The records that were drained for iteration and not returned yet, by partition.

    Loading sets a position back to the first buffered record. Each record returned moves it
    forward. A seek or a revocation drops the partition's records, and a pause keeps them. While
    ``may_deliver()`` is False, records are kept and not returned. All methods except
    :meth:`start_run` end the run.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        may_deliver: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._subscription = subscription
        self._may_deliver = may_deliver
        self._partitions: deque[_BufferedPartition] = deque()
        self._latest: tuple[_BufferedPartition, PartitionState] | None = None
        self._running: tuple[_BufferedPartition, PartitionRun] | None = None
        self.run = RecordRun(subscription.wake_up, clock)
        """The records that iteration may return without a call of this object."""
        self.delivered_count = 0
        """Number of records that :meth:`next` has returned."""

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def timestamp_at(self, tp: TopicPartition, position: int) -> int | None:
        """Return the timestamp of the buffered record at a position, or None without one.

        Any thread may call it, also while the caller takes records. After a seek the buffer may
        still have records from elsewhere.
        """
        for each in tuple(self._partitions):
            if each.topic_partition == tp and each.end > position:
                at = bisect_left(each.records, position, key=lambda record: record.offset)
                if at < len(each.records) and each.records[at].offset == position:
                    return each.records[at].timestamp
        return None

    @property
    def is_withheld(self) -> bool:
        """True if there are records and ``may_deliver()`` is False.

        The answer may change at any time. So a delivery asks once and not again before it drains
        later records of the same partitions.
        """
        return bool(self._partitions) and not self._may_deliver()

    def load(self, drained: Records[Any, Any], *, undelivered: bool = False) -> None:
        """Buffer drained records, except for partitions that are buffered already.

        With ``undelivered``, the records were returned but did not reach the caller. They are put
        before the buffered ones.
        """
        with self._subscription.lock:
            self._end_run()
            for tp, records in drained.items():
                state = self._subscription.partition(tp)
                if state is None or state.position is None:
                    continue
                buffered = self._find(tp, state.epoch)
                if buffered is None:
                    end = max(state.position, records[-1].offset + 1)
                    state.position = records[0].offset
                    self._partitions.append(_BufferedPartition(tp, state.epoch, records, end))
                    continue
                if undelivered:
                    buffered.records, buffered.index = (
                        records + buffered.records[buffered.index :],
                        0,
                    )
                state.position = buffered.records[buffered.index].offset

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record, or None if no buffered record may be returned."""
        if not self._partitions or not self._may_deliver():
            return None
        with self._subscription.lock:
            self._end_run()
            for _ in range(len(self._partitions)):
                buffered = self._partitions[0]
                state = self._current_state(buffered)
                if state is None or buffered.is_exhausted:
                    self._partitions.popleft()
                elif self._is_deliverable(buffered, state):
                    (record,) = buffered.take(state, 1)
                    self._latest = buffered, state
                    self.delivered_count += 1
                    return record
                else:
                    self._partitions.rotate(-1)
        return None

    def has_next(self) -> bool:
        """Return True if :meth:`next` would return a record, unless they are withheld."""
        if not self._partitions:
            return False
        with self._subscription.lock:
            self._end_run()
            return any(
                state is not None
                and not buffered.is_exhausted
                and self._is_deliverable(buffered, state)
                for buffered in self._partitions
                for state in [self._current_state(buffered)]
            )

    def next_after_consumed(self) -> ConsumerRecord[Any, Any] | None:
        """Mark the previous record as processed, then return the next one as next() does."""
        if self._latest is not None:
            with self._subscription.lock:
                self._end_run()
                self._latest[1].note_consumed()
        return self.next()

    def start_run(self, until: float) -> None:
        """Put all but the last record of the latest partition into :attr:`run`.

        The last record moves the position after all of them, so next_after_consumed() returns it.
        The run ends at the time ``until``.
        """
        if self._latest is None:
            return
        buffered, state = self._latest
        with self._subscription.lock:
            self._end_run()
            last = len(buffered.records) - 1
            epoch = state.leader_epoch
            if buffered.index < last and buffered.records[last].leader_epoch == epoch:
                run = PartitionRun(state, self.run)
                self._running = buffered, run
                self._subscription.start_run(run)
                self.run.begin(buffered.records, buffered.index, last, until)

    def end_run(self) -> None:
        """End the run, so that the next record is taken from this object."""
        with self._subscription.lock:
            self._end_run()

    def _end_run(self) -> None:
        """End the run and note which records it has returned. The caller holds the lock."""
        if self._running is not None:
            buffered, run = self._running
            self._subscription.stop_run(run)
            if self.run.stop:  # the run has begun
                buffered.index = self.run.index
            self.run.end()
            self._running = None

    def undo_next(self) -> None:
        """Take back the latest record, because it did not reach the caller."""
        if self._latest is None:
            return
        (buffered, state), self._latest = self._latest, None
        with self._subscription.lock:
            self._end_run()
            if buffered.index and self._current_state(buffered) is state:
                buffered.index -= 1
                state.position = buffered.records[buffered.index].offset
                if buffered not in self._partitions:
                    self._partitions.appendleft(buffered)

    def discard(self) -> bool:
        """Drop all records, so that they are fetched again as bytes. Return True if any were."""
        with self._subscription.lock:
            self._end_run()
            given_up = False
            for buffered in self._partitions:
                state = self._current_state(buffered)
                if state is not None and not buffered.is_exhausted:
                    self._subscription.refetch_from(state)
                    given_up = True
            self._partitions.clear()
        return given_up

    def take(
        self, max_records: int, partitions: Collection[TopicPartition] | None = None
    ) -> Records[Any, Any]:
        """Return up to ``max_records`` records, for a poll() between two steps of iteration.

        The caller has checked :attr:`is_withheld`.
        """
        taken: Records[Any, Any] = {}
        try:
            with self._subscription.lock:
                self._end_run()
                for buffered in list(self._partitions):
                    state = self._current_state(buffered)
                    if state is None or buffered.is_exhausted:
                        self._partitions.remove(buffered)
                    elif max_records > 0 and self._is_deliverable(buffered, state, partitions):
                        given = taken[buffered.topic_partition] = buffered.take(state, max_records)
                        max_records -= len(given)
        except BaseException:
            self.load(taken, undelivered=True)
            raise
        return taken

    def _find(self, tp: TopicPartition, epoch: int) -> _BufferedPartition | None:
        for buffered in self._partitions:
            if (
                buffered.topic_partition == tp
                and buffered.epoch == epoch
                and not buffered.is_exhausted
            ):
                return buffered
        return None

    def _current_state(self, buffered: _BufferedPartition) -> PartitionState | None:
        return self._subscription.partition_at(buffered.topic_partition, buffered.epoch)

    def _is_deliverable(
        self,
        buffered: _BufferedPartition,
        state: PartitionState,
        partitions: Collection[TopicPartition] | None = None,
    ) -> bool:
        return (
            state.position is not None
            and state.is_deliverable
            and (partitions is None or buffered.topic_partition in partitions)
        )
