"""The queues of completed fetches. The background task appends, and the caller drains.

Each partition has a queue of completed and failed fetches in order. The background task appends at
the end, and the caller takes from the front. The subscription's lock guards the queues and the
positions. Therefore an append, a seek and a delivery never interleave.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from kohort.errors import KafkaError, TopicRecreatedError
from kohort.fetcher.buffer._buffer_limits import (
    BufferCounters,
    BufferLimits,
    Queue,
    undelivered_bytes,
)
from kohort.fetcher.buffer._completed import FailedFetch
from kohort.fetcher.buffer._error_policy import Item
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.subscription import PartitionState, SubscriptionState, Watermarks
from kohort.types import TopicPartition


class PartitionQueues:
    """Queues of fetches by partition. DrainSteps takes from them."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        memory: FetchMemory | None = None,
    ) -> None:
        """Take the arguments of BufferLimits.

        ``on_room`` is called without the lock after a drain made room that the fetcher waits for.
        """
        self.counters: BufferCounters = BufferCounters()
        self.by_partition: OrderedDict[TopicPartition, Queue] = OrderedDict()
        """The queues, which the lock guards."""
        self.limits: BufferLimits = BufferLimits(
            subscription, self.by_partition, self.counters, max_bytes=max_bytes, memory=memory
        )
        self.on_room: Callable[[], None] = on_room
        self._subscription = subscription
        self._lock = subscription.lock

    def __contains__(self, tp: object) -> bool:
        """True if the partition has items."""
        return tp in self.by_partition

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
            self._subscription.touched[tp] = None
            queue = self.by_partition.get(tp)
            if queue is None:
                queue = deque()
            elif queue:
                self.drop_finished(tp, queue, state)
            if queue and isinstance(queue[-1], FailedFetch) and queue[-1].is_transient:
                queue.pop()  # the fetch was retried since
            if isinstance(item, FailedFetch):
                if isinstance(item.error, TopicRecreatedError):  # the latest id counts
                    for old in [i for i in queue if isinstance(i.error, TopicRecreatedError)]:
                        queue.remove(old)
                state.status.last_error = item.error
                queue.append(item)
                self.by_partition.setdefault(tp, queue)
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
            self.by_partition.setdefault(tp, queue)
            return True

    def next_timestamps(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the timestamp of the record at each position, if it is buffered and known."""
        found: dict[TopicPartition, int] = {}
        with self._lock:
            for tp, position in positions.items():
                for item in self.by_partition.get(tp, ()):
                    if isinstance(item, FailedFetch) or item.position != position:
                        break
                    if not item.is_busy and item.is_exhausted:
                        continue
                    timestamp = item.next_timestamp()
                    if timestamp is not None:
                        found[tp] = timestamp
                    break
        return found

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
                    queue = self.by_partition.get(tp)
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

    def drop_finished(self, tp: TopicPartition, queue: Queue, state: PartitionState | None) -> None:
        """Drop delivered fetches and fetches of another epoch. The caller holds the lock.

        The next drain drops a delivered fetch, because the drain that delivered it may be undone.
        """
        epoch = None if state is None else state.epoch
        if queue and queue[0].epoch == epoch and not queue[0].is_exhausted:
            return  # later fetches are not delivered either, because order is kept
        for item in queue:
            if item.epoch != epoch:
                self.limits.drop_stale(tp, queue)
                break
        for item in [item for item in queue if not item.is_busy and item.is_exhausted]:
            if item.holds_bytes:  # Ctrl-C came before the drain released them
                item.release()
            queue.remove(item)  # last, because Ctrl-C may come in release() again

    def clear(self) -> None:
        """Drop all items."""
        with self._lock:
            for queue in self.by_partition.values():
                for item in queue:
                    item.release()
            self.by_partition.clear()

    # --- views ----------------------------------------------------------------------------------

    def bytes_buffered(self) -> int:
        """Return the bytes of the batches that are not delivered yet."""
        with self._lock:
            return sum(undelivered_bytes(queue) for queue in self.by_partition.values())

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes of the batches that are not delivered yet, by partition."""
        with self._lock:
            return {tp: undelivered_bytes(queue) for tp, queue in self.by_partition.items()}

    def permanent_errors(self) -> dict[TopicPartition, KafkaError]:
        """Return the errors that remain until the caller seeks, by partition."""
        with self._lock:
            return {
                tp: item.error
                for tp, queue in self.by_partition.items()
                for item in queue
                if item.error is not None
                and item.is_blocked
                and self._subscription.partition_at(tp, item.epoch) is not None
            }
