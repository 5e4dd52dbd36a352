"""The queues of completed fetches. The background task appends, and the caller's drain takes.

Each partition has a queue of completed and failed fetches in order. The background task appends at
the end, and the caller takes from the front. The subscription's lock guards the queues and the
positions. Therefore an append, a seek and a delivery never interleave.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable

from kohort.errors import KafkaError, TopicRecreatedError
from kohort.fetcher._buffer_limits import (
    FETCHES_PER_TABLE,
    BufferCounters,
    BufferLimits,
    Queue,
    undelivered_bytes,
)
from kohort.fetcher._completed import CompletedFetch, FailedFetch
from kohort.fetcher._drain_target import DrainedFetch, DrainTarget
from kohort.fetcher._error_policy import Item
from kohort.fetcher._memory import FetchMemory
from kohort.subscription import PartitionState, SubscriptionState, Watermarks
from kohort.types import TopicPartition


class PartitionQueues:
    """Queues of fetches by partition. Each method is one step under the lock."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        memory: FetchMemory | None = None,
        laggiest_first: bool = False,
    ) -> None:
        """Take the arguments of BufferLimits.

        ``on_room`` is called without the lock after a drain made room that the fetcher waits for.
        ``laggiest_first``: every second drain begins with the partition that has the largest lag.
        """
        self.counters: BufferCounters = BufferCounters()
        self._queues: OrderedDict[TopicPartition, Queue] = OrderedDict()
        self.limits: BufferLimits = BufferLimits(
            subscription, self._queues, self.counters, max_bytes=max_bytes, memory=memory
        )
        self.on_room: Callable[[], None] = on_room
        self._subscription = subscription
        self._lock = subscription.lock
        self._laggiest_first = laggiest_first
        self._by_lag = laggiest_first

    def __contains__(self, tp: object) -> bool:
        """True if the partition has items."""
        return tp in self._queues

    # --- the background task --------------------------------------------------------------------

    def append(self, item: Item, *, at: float = 0.0, had_room: bool = False) -> bool:
        """Append the result of a fetch, and return False if it is stale.

        An empty result only updates the state. ``had_room``: the response could have contained
        more.
        """
        tp = item.topic_partition
        with self._lock:
            state = self._subscription.partition_at(tp, item.epoch)
            if state is None:
                self.counters.dropped_stale += 1
                item.release()
                return False
            self._subscription.touch(tp)
            queue = self._queues.get(tp)
            if queue is None:
                queue = deque()
            elif queue:
                self._drop_finished(tp, queue)
            if queue and isinstance(queue[-1], FailedFetch) and queue[-1].is_transient:
                queue.pop()  # the fetch was retried since
            if isinstance(item, FailedFetch):
                if isinstance(item.error, TopicRecreatedError):  # the latest id counts
                    for old in [i for i in queue if isinstance(i.error, TopicRecreatedError)]:
                        queue.remove(old)
                state.status.last_error = item.error
                queue.append(item)
                self._queues.setdefault(tp, queue)
                return True
            watermarks, fetch = item.watermarks, state.next_fetch
            state.status.note_response(watermarks, at)
            if item.is_exhausted:
                if had_room and not item.size:
                    state.status.note_no_records(fetch.offset, watermarks, at)
                item.release()
                return True
            fetch.offset = item.next_offset
            fetch.leader_epoch = item.last_leader_epoch
            self.counters.bytes_appended += item.size
            queue.append(item)
            self._queues.setdefault(tp, queue)
            return True

    def note_up_to_date(
        self,
        up_to_date: Iterable[tuple[TopicPartition, int, Watermarks]],
        at: float,
        *,
        had_room: bool = False,
    ) -> None:
        """Note partitions without news, with their epochs and latest watermarks."""
        with self._lock:
            for tp, epoch, watermarks in up_to_date:
                if state := self._subscription.partition_at(tp, epoch):
                    queue = self._queues.get(tp)
                    if queue and isinstance(queue[-1], FailedFetch) and queue[-1].is_transient:
                        queue.pop()
                        self._subscription.touch(tp)
                    status = state.status
                    status.note_response(watermarks, at)
                    if had_room:
                        status.note_no_records(state.next_fetch.offset, watermarks, at)

    def note_error(self, tp: TopicPartition, epoch: int, error: KafkaError) -> None:
        """Keep a transient error for explain() and for messages of timeouts."""
        with self._lock:
            if state := self._subscription.partition_at(tp, epoch):
                state.status.last_error = error

    # --- the drain, on the caller's thread ------------------------------------------------------

    def drain_order(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        """Return the partitions that have items, in the order to drain them.

        If the caller wants other partitions than before, the fetcher may choose others, too.
        """
        wanted = None if partitions is None else frozenset(partitions)
        limits = self.limits
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
            wake = wanted != limits.wanted and limits.stop_waiting()
            limits.wanted = wanted
        if wake:
            self.on_room()
        return order

    def claim(
        self,
        tp: TopicPartition,
        index: int,
        partitions: Collection[TopicPartition] | None,
        drained: list[DrainedFetch],
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
                memory = self.limits.memory
                pooled_bytes = memory.pooled_bytes
                self._drop_finished(tp, queue)
                wake = memory.pooled_bytes < pooled_bytes and self.limits.stop_waiting()
                if not queue:
                    del self._queues[tp]
            if index < len(queue) and (state := self._deliverable(tp, partitions)) is not None:
                if queue[index].epoch == state.epoch:
                    item = queue[index]
                    if isinstance(item, CompletedFetch):
                        drained.append(DrainedFetch(item, is_last=index + 1 == len(queue)))
                        item.is_busy = True
        if wake:
            self.on_room()
        return item

    def deliver(self, target: DrainTarget) -> set[TopicPartition]:
        """Move the positions, and deliver the records of partitions that kept their epochs.

        Return the partitions with records.
        """
        result: set[TopicPartition] = set()
        wake = False
        limits = self.limits
        with self._lock:
            for found in target.drained:
                fetch, records = found.fetch, found.records
                fetch.is_busy = False
                tp = fetch.topic_partition
                self._subscription.touch(tp)
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
                if records:
                    self._queues.move_to_end(tp)
                    target.deliver(tp, records)
                    result.add(tp)
                    self.counters.records_delivered += len(records)
                wake = wake or fetch.is_exhausted
            if result:  # every second drain goes by order, so that no partition starves
                self._by_lag = self._laggiest_first and not self._by_lag
            wake = wake and limits.stop_waiting()
        if wake:
            self.on_room()
        return result

    def put_back(self, target: DrainTarget) -> None:
        """Undo a drain. Its positions return, and its records are drained or fetched again."""
        with self._lock:
            for found in reversed(target.drained):
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
        self.on_room()  # the exception may have come before the call in deliver()

    def is_current(self, item: Item, partitions: Collection[TopicPartition] | None) -> bool:
        """True if the item is still in its queue, and its partition may be delivered."""
        tp = item.topic_partition
        with self._lock:
            state = self._deliverable(tp, partitions)
            return (
                state is not None and state.epoch == item.epoch and item in self._queues.get(tp, ())
            )

    def remove(self, item: Item) -> None:
        """Remove an item, so that its partition is fetched again."""
        tp = item.topic_partition
        with self._lock:
            queue = self._queues.get(tp)
            if queue and item in queue:
                queue.remove(item)
                self._subscription.touch(tp)

    def use_table_limits(self) -> None:
        """Buffer more fetches of each partition from now on, because a table takes them all."""
        if self.limits.fetches_per_partition != FETCHES_PER_TABLE:
            with self._lock:
                self.limits.fetches_per_partition = FETCHES_PER_TABLE
                for tp in self._queues:
                    self._subscription.touch(tp)

    def clear(self) -> None:
        """Drop all items."""
        with self._lock:
            for queue in self._queues.values():
                for item in queue:
                    item.release()
            self._queues.clear()

    # --- views ----------------------------------------------------------------------------------

    def bytes_buffered(self) -> int:
        """Return the bytes of the batches that are not delivered yet."""
        with self._lock:
            return sum(undelivered_bytes(queue) for queue in self._queues.values())

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes of the batches that are not delivered yet, by partition."""
        with self._lock:
            return {tp: undelivered_bytes(queue) for tp, queue in self._queues.items()}

    def deliverable_bytes(self, partitions: Collection[TopicPartition] | None) -> int:
        """Return the bytes of the batches that a drain of these partitions may take."""
        with self._lock:
            return sum(
                undelivered_bytes(queue)
                for tp, queue in self._queues.items()
                if self._deliverable(tp, partitions) is not None
            )

    def permanent_errors(self) -> dict[TopicPartition, KafkaError]:
        """Return the errors that remain until the caller seeks, by partition."""
        with self._lock:
            return {
                tp: item.error
                for tp, queue in self._queues.items()
                for item in queue
                if item.error is not None
                and item.is_blocked
                and self._subscription.partition_at(tp, item.epoch) is not None
            }

    # --- under the lock -------------------------------------------------------------------------

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

    def _drop_finished(self, tp: TopicPartition, queue: Queue) -> None:
        """Drop delivered fetches and fetches of another epoch.

        The next drain drops a delivered fetch, because the drain that delivered it may be undone.
        """
        state = self._subscription.partition(tp)
        if queue and state is not None and queue[0].epoch == state.epoch:
            if not queue[0].is_exhausted:
                return  # later fetches are not delivered either, because order is kept
        self.limits.drop_stale(tp, queue)
        for item in [item for item in queue if not item.is_busy and item.is_exhausted]:
            queue.remove(item)
            if item.holds_bytes:  # Ctrl-C came before the drain released them
                item.release()
