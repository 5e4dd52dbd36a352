"""A drain: its target, records or one table, and its steps under the lock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kohort.fetcher.buffer._buffer_limits import FETCHES_PER_TABLE, Queue, undelivered_bytes
from kohort.fetcher.buffer._completed import CompletedFetch
from kohort.fetcher.buffer._error_policy import Item
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.records import ConsumerRecord
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[K, V]]]
"""Records of each partition, in order."""


class DrainedFetch:
    """Records decoded in one drain, and the state to restore if they are not delivered."""

    __slots__ = ("fetch", "is_last", "leader_epoch", "moved", "position", "records")

    def __init__(self, fetch: CompletedFetch, *, is_last: bool) -> None:
        self.fetch = fetch
        self.records: Any = []
        """The result of the target's take()."""
        self.is_last = is_last
        """True if the fetch was the last of its queue."""
        self.moved: PartitionState | None = None
        """The state whose position was moved, or None before the delivery."""
        self.position: int | None = None
        """The position before the delivery."""
        self.leader_epoch = -1
        """The leader epoch before the delivery."""


class DrainTarget(Protocol):
    """The target of one drain. The results of take() have a length."""

    drained: list[DrainedFetch]
    """The fetches that the drain has claimed so far, in order."""

    def is_ready(self, fetch: CompletedFetch) -> bool:
        """True if the target can take the fetch. Otherwise it must be fetched again."""
        ...

    def take(self, fetch: CompletedFetch, limit: int) -> Any: ...

    def finish(self) -> None:
        """Build the result after the last take() and before the first deliver().

        All fetches still have their bytes.
        """
        ...

    def leader_epoch(self, fetch: CompletedFetch, taken: Any) -> int:
        """Return the leader epoch of the last record taken."""
        ...

    def epoch_starts(self, taken: Any) -> list[tuple[int, int]]:
        """Return (offset, leader epoch) where the epoch of the records changes, if known."""
        ...

    def deliver(self, tp: TopicPartition, taken: Any) -> None: ...

    def put_back(self, subscription: SubscriptionState, fetch: CompletedFetch, taken: Any) -> bool:
        """Undo a take(), and return True if a fetch is needed. The caller holds the lock."""
        ...

    def is_complete(self) -> bool:
        """True if all taken records were delivered, or the target does not need all of them.

        Otherwise the drain is undone.
        """
        ...

    def clear(self) -> None:
        """Remove all records, because the drain was undone."""
        ...


class RecordTarget:
    """The target for record objects."""

    def __init__(self) -> None:
        self.records: Records[Any, Any] = {}
        self.drained: list[DrainedFetch] = []

    def is_ready(self, fetch: CompletedFetch) -> bool:
        return True

    def take(self, fetch: CompletedFetch, limit: int) -> list[ConsumerRecord[Any, Any]]:
        return fetch.take(limit)

    def finish(self) -> None:
        pass

    def leader_epoch(self, fetch: CompletedFetch, taken: list[ConsumerRecord[Any, Any]]) -> int:
        return taken[-1].leader_epoch

    def epoch_starts(self, taken: list[ConsumerRecord[Any, Any]]) -> list[tuple[int, int]]:
        runs = itertools.groupby(taken, key=lambda record: record.leader_epoch)
        return [(next(records).offset, epoch) for epoch, records in runs]

    def deliver(self, tp: TopicPartition, taken: list[ConsumerRecord[Any, Any]]) -> None:
        before = self.records.get(tp)
        self.records[tp] = taken if before is None else before + taken  # both may be put back

    def put_back(
        self,
        subscription: SubscriptionState,
        fetch: CompletedFetch,
        taken: list[ConsumerRecord[Any, Any]],
    ) -> bool:
        fetch.put_back(taken)
        return False

    def is_complete(self) -> bool:
        return True

    def clear(self) -> None:
        self.records = {}


class TableTarget(Generic[T]):
    """The target for one table of all partitions, which ``build`` creates.

    Fetches that are put back are fetched again.
    """

    def __init__(self, plan: TablePlan, build: Callable[[TablePlan], T]) -> None:
        self.plan = plan
        self.table: T | None = None
        self.drained: list[DrainedFetch] = []
        self._build = build
        self._delivered_rows = 0

    def is_ready(self, fetch: CompletedFetch) -> bool:
        return not fetch.is_partly_decoded

    def take(self, fetch: CompletedFetch, limit: int) -> range:
        return range(fetch.measure(self.plan))

    def finish(self) -> None:
        if self.plan.rows:
            self.table = self._build(self.plan)

    def leader_epoch(self, fetch: CompletedFetch, taken: range) -> int:
        return fetch.measured_epoch

    def epoch_starts(self, taken: range) -> list[tuple[int, int]]:
        return []

    def deliver(self, tp: TopicPartition, taken: range) -> None:
        self._delivered_rows += len(taken)

    def put_back(
        self, subscription: SubscriptionState, fetch: CompletedFetch, taken: range
    ) -> bool:
        state: PartitionState | None = subscription.partition_at(fetch.topic_partition, fetch.epoch)
        if state is None or not (taken or fetch.is_partly_decoded or fetch.is_measured):
            return False
        subscription.refetch_from(state)
        return True

    def is_complete(self) -> bool:
        # Rows cannot be removed from a table, so one revoked partition makes it unusable.
        if self._delivered_rows < self.plan.rows:
            self.table = None
        return self._delivered_rows == self.plan.rows

    def clear(self) -> None:
        self.table = None


class DrainSteps:
    """The steps of drains, on the caller's thread. Each method is one step under the lock."""

    def __init__(
        self, subscription: SubscriptionState, queues: PartitionQueues, *, laggiest_first: bool
    ) -> None:
        """``laggiest_first``: every second drain begins with the largest lag."""
        self._subscription = subscription
        self._lock = subscription.lock
        self._queues = queues
        self._by_partition = queues.by_partition
        self._limits = queues.limits
        self._laggiest_first = laggiest_first
        self._by_lag = laggiest_first
        self._changes = -1
        """SubscriptionState.changes at the latest drain."""

    def begin(
        self, partitions: Collection[TopicPartition] | None
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the partitions that have items, in the order to drain them, and emptied ones.

        Items that an earlier drain finished are dropped. The drain that finishes an item does not
        drop it, because it may still be undone. If the caller wants other partitions than before,
        the fetcher may choose others, too.
        """
        wanted = None if partitions is None else frozenset(partitions)
        limits = self._limits
        with self._lock:
            pooled_bytes = limits.memory.pooled_bytes
            changes = self._subscription.changes
            is_stale = changes != self._changes
            emptied = [
                tp
                for tp, queue in self._by_partition.items()
                if (is_stale or not queue or queue[0].is_exhausted) and self._drop(tp, queue)
            ]
            for tp in emptied:
                del self._by_partition[tp]
            self._changes = changes  # after the last drop, because Ctrl-C interrupts calls
            order = list(self._by_partition)
            if self._by_lag:
                lags = {
                    tp: self._lag(tp)
                    for tp, queue in self._by_partition.items()
                    if self._deliverable(tp, partitions) and not all(i.is_exhausted for i in queue)
                }
                if lags:
                    laggiest = max(lags, key=lags.__getitem__)
                    order = [laggiest, *(tp for tp in order if tp != laggiest)]
            wake = (
                wanted != limits.wanted or limits.memory.pooled_bytes < pooled_bytes
            ) and limits.stop_waiting()
            limits.wanted = wanted
        if wake:
            self._queues.on_room()
        return order, emptied

    def _drop(self, tp: TopicPartition, queue: Queue) -> bool:
        """Drop finished and stale items, and return True if none is left."""
        first = queue[0] if len(queue) == 1 else None
        if first is not None and first.is_exhausted and not (first.is_busy or first.holds_bytes):
            return True
        self._queues.drop_finished(tp, queue, self._subscription.partition(tp))
        return not queue

    def claim(
        self,
        tp: TopicPartition,
        index: int,
        partitions: Collection[TopicPartition] | None,
        drained: list[DrainedFetch],
    ) -> Item | None:
        """Return the item at an index of the queue, or None.

        A completed fetch is appended to ``drained`` and marked busy, so that an append does not
        drop it.
        """
        with self._lock:
            queue = self._by_partition.get(tp)
            if queue is None or index >= len(queue):
                return None
            state = self._subscription.partition(tp)
            item = queue[index]
            if state is None or state.epoch != item.epoch or not state.is_deliverable:
                return None
            if partitions is not None and tp not in partitions:
                return None
            if isinstance(item, CompletedFetch):
                drained.append(DrainedFetch(item, is_last=index + 1 == len(queue)))
                item.is_busy = True
            return item

    def deliver(self, target: DrainTarget) -> set[TopicPartition]:
        """Move the positions, and deliver the records of partitions that kept their epochs.

        Return the partitions with records.
        """
        result: set[TopicPartition] = set()
        wake = False
        limits = self._limits
        with self._lock:
            for found in target.drained:
                fetch, records = found.fetch, found.records
                fetch.is_busy = False
                tp = fetch.topic_partition
                self._subscription.touched[tp] = None
                state = self._subscription.partition_at(tp, fetch.epoch)
                if state is None or not state.is_deliverable or not target.is_ready(fetch):
                    wake = target.put_back(self._subscription, fetch, records) or wake
                    limits.is_fetcher_waiting = limits.is_fetcher_waiting or wake
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
                if state.leader_epoch != found.leader_epoch and found.position is not None:
                    starts = target.epoch_starts(records) or [(found.position, state.leader_epoch)]
                    state.note_epochs(*starts, (fetch.position - 1, state.leader_epoch))
                if records:
                    self._by_partition.move_to_end(tp)
                    target.deliver(tp, records)
                    result.add(tp)
                    self._queues.counters.records_delivered += len(records)
                wake = wake or fetch.is_exhausted
            if result:  # every second drain goes by order, so that no partition starves
                self._by_lag = self._laggiest_first and not self._by_lag
            wake = wake and limits.stop_waiting()
        if wake:
            self._queues.on_room()
        return result

    def put_back(self, target: DrainTarget) -> None:
        """Undo a drain. Its positions return, and its records are drained or fetched again."""
        with self._lock:
            target.clear()
            for found in reversed(target.drained):
                fetch, tp = found.fetch, found.fetch.topic_partition
                if found.moved is not None:
                    found.moved.position = found.position
                    found.moved.leader_epoch = found.leader_epoch
                target.put_back(self._subscription, fetch, found.records)
                fetch.is_busy = False
                self._subscription.touch(tp)
                state = self._subscription.partition_at(tp, fetch.epoch)
                if (
                    state is not None
                    and found.records
                    and fetch not in self._by_partition.get(tp, ())
                ):
                    # An append has dropped the fetch, because its records were all taken.
                    self._subscription.refetch_from(state)
        self._queues.on_room()  # the exception may have come before the call in deliver()

    def is_current(self, item: Item, partitions: Collection[TopicPartition] | None) -> bool:
        """True if the item is still in its queue, and its partition may be delivered."""
        tp = item.topic_partition
        with self._lock:
            state = self._deliverable(tp, partitions)
            return (
                state is not None
                and state.epoch == item.epoch
                and item in self._by_partition.get(tp, ())
            )

    def remove(self, item: Item) -> None:
        """Remove an item, so that its partition is fetched again."""
        tp = item.topic_partition
        with self._lock:
            queue = self._by_partition.get(tp)
            if queue and item in queue:
                queue.remove(item)
                self._subscription.touch(tp)

    def use_table_limits(self) -> None:
        """Buffer more fetches of each partition from now on, because a table takes them all."""
        if self._limits.fetches_per_partition != FETCHES_PER_TABLE:
            with self._lock:
                self._limits.fetches_per_partition = FETCHES_PER_TABLE
                for tp in self._by_partition:
                    self._subscription.touch(tp)

    def deliverable_bytes(self, partitions: Collection[TopicPartition] | None) -> int:
        """Return the bytes of the batches that a drain of these partitions may take."""
        with self._lock:
            return sum(
                undelivered_bytes(queue)
                for tp, queue in self._by_partition.items()
                if self._deliverable(tp, partitions) is not None
            )

    def _lag(self, tp: TopicPartition) -> int:
        state = self._subscription.partition(tp)
        assert state is not None
        end = 0 if state.watermarks is None else state.watermarks.high_watermark
        return end - (state.position or 0)

    def _deliverable(
        self, tp: TopicPartition, partitions: Collection[TopicPartition] | None
    ) -> PartitionState | None:
        state = self._subscription.partition(tp)
        if state is None or not state.is_deliverable:
            return None
        return state if partitions is None or tp in partitions else None
