"""The buffer of completed fetches. The background task fills it, and the caller drains it.

Each partition has a queue of completed and failed fetches in order. The background task appends at
the end, and the caller takes from the front. The subscription's lock guards the queues and the
positions. Therefore an append, a seek and a delivery never interleave.

A drain has two steps:

1. Decode records on the caller's thread, without the lock. The fetches are marked busy, so that an
   append does not drop them.
2. Take the lock, move the positions and deliver the records. Records of a partition that has
   another epoch by now are dropped.

If an exception is raised in between (Ctrl-C in a deserializer), all decoded records return to the
fetches.

An error of one partition never delays another partition. A drain that found records returns them,
and the next drain raises the error. See :meth:`FetchBuffer.drain`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kohort.errors import OffsetOutOfRangeError, TopicRecreatedError
from kohort.fetcher._completed import CompletedFetch, FailedFetch
from kohort.fetcher._drain_target import DrainTarget, Records, RecordTarget, TableTarget
from kohort.fetcher._error_policy import ErrorPolicy, Item, OnError
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._partition_queues import FETCHES_PER_TABLE, PartitionQueues
from kohort.subscription import OffsetReset, PartitionState, SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import SizeHistory

logger = logging.getLogger("kohort.fetcher")


class _DrainedFetch:
    """Records decoded in this drain, and the state to restore if they are not delivered."""

    __slots__ = ("fetch", "is_last", "leader_epoch", "moved", "position", "records")

    def __init__(self, fetch: CompletedFetch, records: Any, *, is_last: bool) -> None:
        self.fetch = fetch
        self.records = records
        self.is_last = is_last
        """True if the fetch was the last of its queue."""
        self.moved: PartitionState | None = None
        self.position: int | None = None
        self.leader_epoch = -1


class FetchBuffer(PartitionQueues):
    """Completed fetches by partition. One thread appends, and one thread drains."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        may_deliver: Callable[[], bool] = lambda: True,
        on_error: OnError = "raise",
        memory: FetchMemory | None = None,
        laggiest_first: bool = False,
    ) -> None:
        """Take the arguments of PartitionQueues.

        While ``may_deliver`` returns False, drains deliver nothing. ``laggiest_first``: every
        second drain begins with the partition that has the largest lag.
        """
        super().__init__(subscription, max_bytes=max_bytes, on_room=on_room, memory=memory)
        self.tables: SizeHistory | None = None
        """Sizes of the last table, or None before the first one."""
        self.policy: ErrorPolicy = ErrorPolicy(subscription, on_error, on_room=on_room)
        self._may_deliver = may_deliver
        self._laggiest_first = laggiest_first
        self._by_lag = laggiest_first
        self._pending_error: Item | None = None  # raised first by the next drain
        self._raises = 0

    def drain(
        self,
        max_records: int,
        partitions: Collection[TopicPartition] | None = None,
        *,
        repeat_errors: bool = True,
    ) -> Records[Any, Any]:
        """Return up to ``max_records`` buffered records, or none, and move the positions.

        An error of a partition is raised after all records before it were delivered. It is never
        raised together with records: if other partitions have records, the *next* drain raises
        it. The drain after that returns records again.

        The error remains until the partition is sought past it, paused or revoked. Every drain
        that finds no records raises it again. With ``repeat_errors=False`` a drain raises only
        errors that were not raised before. A caller that waits for records passes False until its
        timeout ends, so that it neither spins nor misses the error. ``on_error`` is called first
        for data that cannot be read.
        """
        target = RecordTarget()
        self._drain(target, max_records, partitions, repeat_errors)
        return target.records

    def drain_table(
        self,
        target: TableTarget[Any],
        partitions: Collection[TopicPartition] | None = None,
        *,
        repeat_errors: bool = True,
    ) -> None:
        """Put the rows of all partitions into one table, by the rules of drain().

        Deserializers do not run.
        """
        if self._max_fetches != FETCHES_PER_TABLE:
            with self._lock:
                self._max_fetches = FETCHES_PER_TABLE
                for tp in self._queues:
                    self._subscription.touch(tp)
        target.plan.expect(self._deliverable_bytes(partitions))
        self._drain(target, target.plan.max_rows, partitions, repeat_errors)

    def _drain(
        self,
        target: DrainTarget,
        max_records: int,
        partitions: Collection[TopicPartition] | None,
        repeat_errors: bool,
    ) -> None:
        if not self._may_deliver():
            return
        self._raise_pending(partitions)
        drained: list[_DrainedFetch] = []
        blocked: list[Item] = []
        to_reset: list[FailedFetch] = []
        target.begin(self._put_back, drained)
        try:
            self._decode(target, max_records, partitions, drained, blocked, to_reset, repeat_errors)
            target.finish()
            records = self._deliver(target, drained)
            if not target.is_complete():
                self._put_back(target, drained)
                return  # a later drain raises the errors after the rows before them
        except BaseException:
            self._put_back(target, drained)
            raise
        for failed in to_reset:
            self._reset(failed)
        if not blocked:
            return  # CPython runs signal handlers in calls, and none follows the delivery here
        try_resolve = self.policy.try_resolve
        if blocked := [it for it in blocked if not try_resolve(it, records, repeat=repeat_errors)]:
            item = min(blocked, key=lambda item: item.raised)
            if records:
                self._pending_error = item
            elif repeat_errors or not item.raised:
                self._raise(item)

    def _deliverable_bytes(self, partitions: Collection[TopicPartition] | None) -> int:
        with self._lock:
            return sum(
                item.size
                for tp, queue in self._queues.items()
                if self._deliverable(tp, partitions) is not None
                for item in queue
                if not item.is_exhausted
            )

    def close(self) -> None:
        """Drop all buffered fetches and pending errors."""
        with self._lock:
            for queue in self._queues.values():
                for item in queue:
                    item.release()
            self._queues.clear()
            self._pending_error = self._reported = None

    def _raise_pending(self, partitions: Collection[TopicPartition] | None) -> None:
        if self._reported is not None:
            error, self._reported = self._reported, None
            self.counters.errors_raised += 1
            raise error
        item, self._pending_error = self._pending_error, None
        if item is None:
            return
        with self._lock:
            tp = item.topic_partition
            state = self._deliverable(tp, partitions)
            is_current = (
                state is not None
                and state.epoch == item.epoch
                and item.error is not None
                and item in self._queues.get(tp, ())
            )
        if is_current:
            self._raise(item)

    def _raise(self, item: Item) -> None:
        error = self.policy.error_to_raise(item)
        self._raises += 1
        item.raised = self._raises
        self.counters.errors_raised += 1
        if isinstance(item, FailedFetch) and item.is_transient:
            with self._lock:
                queue = self._queues.get(item.topic_partition)
                if queue and item in queue:
                    queue.remove(item)
                    self._subscription.touch(item.topic_partition)
        # The traceback of an earlier raise would grow with each poll.
        raise error.with_traceback(None)

    def _decode(
        self,
        target: DrainTarget,
        max_records: int,
        partitions: Collection[TopicPartition] | None,
        drained: list[_DrainedFetch],
        blocked: list[Item],
        to_reset: list[FailedFetch],
        repeat_errors: bool,
    ) -> None:
        """Decode records of one partition after the other.

        ``blocked`` gets the items that stop their partitions, ``to_reset`` those that start a
        reset.
        """
        missing = max_records
        for tp in self._drain_order(partitions):
            if missing <= 0:
                break
            index = 0
            while missing > 0 and (item := self._claim(tp, index, partitions, drained)) is not None:
                if isinstance(item, FailedFetch):
                    (to_reset if self._is_reset(item) else blocked).append(item)
                    break
                found = drained[-1]
                if not target.is_ready(item):
                    break
                found.records = target.take(item, missing)
                while item.error is not None and self.policy.try_skip(item, repeat=repeat_errors):
                    found.records += target.take(item, missing - len(found.records))
                missing -= len(found.records)
                if item.error is not None:
                    blocked.append(item)
                if found.is_last or not item.is_exhausted:
                    break
                index += 1

    def _drain_order(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        """Return the partitions that have buffered items, in the order to drain them."""
        wanted = None if partitions is None else frozenset(partitions)
        with self._lock:
            order = list(self._queues)
            if self._by_lag:
                lags = {
                    tp: self._lag(tp)
                    for tp, queue in self._queues.items()
                    if self._deliverable(tp, partitions) and not all(i.is_exhausted for i in queue)
                }
                if lags:
                    laggiest = max(lags, key=lags.__getitem__)
                    order = [laggiest, *(tp for tp in order if tp != laggiest)]
            wake = self._is_fetcher_waiting and wanted != self._wanted
            if wake:
                self._is_fetcher_waiting = False
            self._wanted = wanted
        if wake:
            self._on_room()
        return order

    def _lag(self, tp: TopicPartition) -> int:
        state = self._subscription.partition(tp)
        assert state is not None
        return (state.high_watermark or 0) - (state.position or 0)

    def _deliverable(
        self, tp: TopicPartition, partitions: Collection[TopicPartition] | None
    ) -> PartitionState | None:
        state = self._subscription.partition(tp)
        if state is None or not state.is_deliverable:
            return None
        return state if partitions is None or tp in partitions else None

    def _claim(
        self,
        tp: TopicPartition,
        index: int,
        partitions: Collection[TopicPartition] | None,
        drained: list[_DrainedFetch],
    ) -> Item | None:
        """Return the item at an index of the queue, or None.

        A completed fetch is appended to ``drained`` and marked busy, so that an append does not
        drop it. At index 0, items that an earlier drain finished are dropped first. The drain that
        finishes an item does not drop it, because it may still be undone.
        """
        wake = False
        item: Item | None = None
        with self._lock:
            queue = self._queues.get(tp)
            if queue is None:
                return None
            if index == 0:
                pooled_bytes = self.memory.pooled_bytes
                self._drop_finished(tp, queue)
                wake = self._is_fetcher_waiting and self.memory.pooled_bytes < pooled_bytes
                if wake:
                    self._is_fetcher_waiting = False
                if not queue:
                    del self._queues[tp]
                    self.policy.forget(tp)
            if index < len(queue) and (state := self._deliverable(tp, partitions)) is not None:
                if queue[index].epoch == state.epoch:
                    item = queue[index]
                    if isinstance(item, CompletedFetch):
                        drained.append(_DrainedFetch(item, [], is_last=index + 1 == len(queue)))
                        item.is_busy = True
        if wake:
            self._on_room()
        return item

    def _is_reset(self, item: FailedFetch) -> bool:
        if isinstance(item.error, TopicRecreatedError):
            return self._subscription.default_reset.reads_recreated
        return (
            isinstance(item.error, OffsetOutOfRangeError)
            and not item.is_transient  # the error of a fetch, not of the look-up for a reset
            and self._subscription.default_reset != OffsetReset.NONE
        )

    def _reset(self, item: FailedFetch) -> None:
        """Reset a partition by ``auto_offset_reset``, after all records before were delivered.

        A recreated topic is read from its beginning, because every record in it is younger than
        the subscription.
        """
        recreated = isinstance(item.error, TopicRecreatedError)
        strategy = OffsetReset.EARLIEST if recreated else self._subscription.default_reset
        with self._lock:
            state = self._subscription.partition_at(item.topic_partition, item.epoch)
            if state is None:
                return
            offset = state.fetch_offset
            self._subscription.start_reset(state, strategy)
        if not recreated:
            logger.warning(
                "%s-%d: offset %s is out of range. The position is reset to %r",
                *item.topic_partition,
                offset,
                strategy.value,
            )
        self._on_room()

    def _deliver(self, target: DrainTarget, drained: list[_DrainedFetch]) -> set[TopicPartition]:
        """Move the positions and deliver the records of partitions that kept their epochs."""
        result: set[TopicPartition] = set()
        wake = False
        with self._lock:
            for found in drained:
                fetch, records = found.fetch, found.records
                fetch.is_busy = False
                tp = fetch.topic_partition
                self._subscription.touch(tp)
                state = self._subscription.partition_at(tp, fetch.epoch)
                if state is None or not state.is_deliverable or not target.is_ready(fetch):
                    wake = target.put_back(self._subscription, fetch, records) or wake
                    self._is_fetcher_waiting = self._is_fetcher_waiting or wake
                    found.records = ()
                    continue
                found.position, found.leader_epoch = state.position, state.leader_epoch
                found.moved = state
                state.position = fetch.position
                if fetch.position == fetch.next_offset:
                    # The last batch may have no records, as the end marker of a transaction.
                    state.leader_epoch = fetch.last_leader_epoch
                elif records:
                    state.leader_epoch = target.leader_epoch(fetch, records)
                if records:
                    self._queues.move_to_end(tp)
                    target.deliver(tp, records)
                    result.add(tp)
                    self.counters.records_delivered += len(records)
                wake = wake or fetch.is_exhausted
            if result:  # every second drain goes by order, so that no partition starves
                self._by_lag = self._laggiest_first and not self._by_lag
            wake = wake and self._is_fetcher_waiting
            if wake:
                self._is_fetcher_waiting = False
        if wake:
            self._on_room()
        return result

    def _put_back(self, target: DrainTarget, drained: list[_DrainedFetch]) -> None:
        with self._lock:
            for found in reversed(drained):
                fetch, tp = found.fetch, found.fetch.topic_partition
                if found.moved is not None:
                    found.moved.position = found.position
                    found.moved.leader_epoch = found.leader_epoch
                target.put_back(self._subscription, fetch, found.records)
                fetch.is_busy = False
                self._subscription.touch(tp)
                state = self._subscription.partition_at(tp, fetch.epoch)
                if state is not None and found.records and fetch not in self._queues.get(tp, ()):
                    # An append has dropped the fetch, because its records were all taken.
                    self._subscription.refetch_from(state)
        self._on_room()  # the exception may have come before the call in _deliver()
