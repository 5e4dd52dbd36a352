"""The queues of completed fetches, which the background task fills.

Each partition has a queue of completed and failed fetches in order. The subscription's lock guards
the queues and the positions.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable

from kohort.errors import KafkaError, TopicRecreatedError
from kohort.fetcher._completed import FailedFetch
from kohort.fetcher._error_policy import Item
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._sessions import Watermarks
from kohort.subscription import FetchTarget, PartitionState, SubscriptionState
from kohort.types import TopicPartition

FETCHES_PER_PARTITION = 2
"""Buffered fetches of one partition: one that the caller takes, and the next one."""
FETCHES_PER_TABLE = 4
"""Buffered fetches of one partition for tables, which take all buffered rows."""
AMPLE_FACTOR = 4
"""Multiple of :attr:`PartitionQueues.read_ahead` from which even empty partitions wait."""


class BufferCounters:
    """Counters of the buffer since the start."""

    __slots__ = (
        "bytes_appended",
        "bytes_evicted",
        "dropped_stale",
        "errors_raised",
        "records_delivered",
    )

    def __init__(self) -> None:
        self.records_delivered: int = 0
        self.bytes_appended: int = 0
        self.dropped_stale: int = 0
        self.errors_raised: int = 0
        self.bytes_evicted: int = 0


class PartitionQueues:
    """Queues of fetches by partition, and the room for further fetches."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        memory: FetchMemory | None = None,
    ) -> None:
        """Set :attr:`read_ahead` to ``max_bytes``. ``memory`` limits all buffered bytes."""
        self.counters: BufferCounters = BufferCounters()
        self.memory: FetchMemory = memory or FetchMemory(1 << 62)
        self._subscription = subscription
        self._lock = subscription.lock
        self.read_ahead = max_bytes
        """Bytes to buffer for the caller before a partition is fetched a second time."""
        self.is_ample: bool = False
        """True if no partition needs a fetch, as of the latest update_limits()."""
        self._on_room = on_room
        self._queues: OrderedDict[TopicPartition, deque[Item]] = OrderedDict()  # under the lock
        # The lock guards these. True if a partition waits for room.
        self._is_fetcher_waiting = False
        # True if read_ahead bytes are buffered for the caller.
        self._is_full = False
        self.allowed: Collection[TopicPartition] | None = None
        """The partitions with memory for a fetch, as of update_limits(), or None for all."""
        # The lock guards this. The partitions of the latest drain, or None for all.
        self._wanted: frozenset[TopicPartition] | None = None
        self._max_fetches = FETCHES_PER_PARTITION
        self._reported: KafkaError | None = None  # an error that concerns no single partition

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
                state.last_error = item.error
                queue.append(item)
                self._queues.setdefault(tp, queue)
                return True
            watermarks = Watermarks(
                item.high_watermark, item.last_stable_offset, item.log_start_offset
            )
            _note_watermarks(state, watermarks, at)
            if item.is_exhausted:
                if had_room and not item.size:
                    _note_withheld(state, watermarks, at)
                item.release()
                return True
            state.fetch_offset = item.next_offset
            state.fetch_leader_epoch = item.last_leader_epoch
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
                    _note_watermarks(state, watermarks, at)
                    if had_room:
                        _note_withheld(state, watermarks, at)

    def report(self, error: KafkaError) -> None:
        """Let the next drain raise an error that concerns no single partition."""
        self._reported = error

    def note_error(self, tp: TopicPartition, epoch: int, error: KafkaError) -> None:
        """Keep a transient error for explain() and for messages of timeouts."""
        with self._lock:
            if state := self._subscription.partition_at(tp, epoch):
                state.last_error = error

    def bytes_buffered(self) -> int:
        """Return the bytes of the batches that are not delivered yet."""
        with self._lock:
            return sum(_size(queue) for queue in self._queues.values())

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """Return the bytes of the batches that are not delivered yet, by partition."""
        with self._lock:
            return {tp: _size(queue) for tp, queue in self._queues.items()}

    def permanent_errors(self) -> dict[TopicPartition, KafkaError]:
        """Return the errors that remain until the caller seeks, by partition."""
        with self._lock:
            return {
                tp: item.error
                for tp, queue in self._queues.items()
                for item in queue
                if item.error is not None and item.is_blocked and self._is_current(item)
            }

    def update_limits(self) -> None:
        """Count the buffered bytes before partitions are chosen. The caller holds the lock."""
        memory = self.memory
        memory.buffered_bytes, deliverable = self._count_bytes()
        full = deliverable >= self.read_ahead
        self.is_ample = deliverable >= AMPLE_FACTOR * self.read_ahead
        if self.is_ample:
            self._is_fetcher_waiting = True
        if full != self._is_full:
            self._is_full = full
            for tp in self._queues:
                self._subscription.touch(tp)
        if 2 * memory.used < memory.limit:
            self.allowed = None
            return
        deliverable = 0
        if memory.is_full:
            self._evict()
            memory.buffered_bytes, deliverable = self._count_bytes()
        # A caller without deliverable records must get some.
        self.allowed = frozenset() if memory.is_full and deliverable else self._wanted
        if self.allowed is not None:
            self._is_fetcher_waiting = True

    def has_room(self, target: FetchTarget) -> bool:
        """True if the partition may be fetched, as of the latest update_limits().

        It must be below its limit of fetches and not blocked. The caller holds the lock. The next
        drain that makes room calls ``on_room``.
        """
        queue = self._queues.get(target.topic_partition)
        if not queue:
            return True
        current = [i for i in queue if i.epoch == target.epoch and not i.is_exhausted]
        room = not current or (
            len(current) < self._max_fetches
            and not self._is_full
            and not any(i.is_blocked for i in current)
        )
        if not room:
            self._is_fetcher_waiting = True
        return room

    def note_waiting(self) -> None:
        """Let a drain that makes room call ``on_room``. The caller holds the lock."""
        self._is_fetcher_waiting = True

    def _evict(self) -> None:
        """Drop stale fetches, and fetches that the caller cannot take beyond half of the memory.

        The caller cannot take fetches of partitions that are paused or not in its latest drain.
        They are fetched again when needed, so no record is lost.
        """
        evictable: dict[TopicPartition, int] = {}
        for tp, queue in self._queues.items():
            state = self._subscription.partition(tp)
            if state is not None and (state.paused or not self._is_wanted(tp)):
                evictable[tp] = sum(item.size for item in queue if item.epoch == state.epoch)
            self._drop_stale(tp, queue)
        excess = sum(evictable.values()) - self.memory.limit // 2
        for tp in sorted(evictable, key=evictable.__getitem__, reverse=True):
            state = self._subscription.partition(tp)
            if excess <= 0 or state is None:
                break
            excess -= evictable[tp]
            self.counters.bytes_evicted += evictable[tp]
            self._subscription.refetch_from(state)
            self._drop_stale(tp, self._queues[tp])

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._wanted is None or tp in self._wanted

    def _count_bytes(self) -> tuple[int, int]:
        """Return the bytes that are not delivered, and the bytes that the caller may take now.

        A pause or an error of one partition must not stop fetches of the others.
        """
        queued = deliverable = 0
        for tp, queue in self._queues.items():
            size = _size(queue)
            if not size:
                continue
            queued += size
            state = self._subscription.partition(tp)
            if state is not None and state.is_deliverable and self._is_wanted(tp):
                if all(item.epoch == state.epoch and not item.is_blocked for item in queue):
                    deliverable += size
        return queued, deliverable

    def _is_current(self, item: Item) -> bool:
        return self._subscription.partition_at(item.topic_partition, item.epoch) is not None

    def _drop_finished(self, tp: TopicPartition, queue: deque[Item]) -> None:
        """Drop delivered fetches and fetches of another epoch. The caller holds the lock.

        The next drain drops a delivered fetch, because the drain that delivered it may be undone.
        """
        state = self._subscription.partition(tp)
        if queue and state is not None and queue[0].epoch == state.epoch:
            if not queue[0].is_exhausted:
                return  # later fetches are not delivered either, because order is kept
        self._drop_stale(tp, queue)
        for item in [item for item in queue if not item.is_busy and item.is_exhausted]:
            queue.remove(item)
            item.release()

    def _drop_stale(self, tp: TopicPartition, queue: deque[Item]) -> None:
        state = self._subscription.partition(tp)
        epoch = state.epoch if state is not None else None
        for item in [item for item in queue if not item.is_busy and item.epoch != epoch]:
            self.counters.dropped_stale += 1
            queue.remove(item)
            item.release()


def _size(queue: Iterable[Item]) -> int:
    """Return the bytes that are not delivered yet."""
    return sum([item.size for item in queue if not item.is_exhausted])


def _note_watermarks(state: PartitionState, watermarks: Watermarks, at: float) -> None:
    """Update the state by a response without an error."""
    state.last_error = None
    state.fetched_at = at
    state.high_watermark = watermarks.high_watermark
    state.last_stable_offset = watermarks.last_stable_offset
    state.log_start_offset = watermarks.log_start_offset


def _note_withheld(state: PartitionState, watermarks: Watermarks, at: float) -> None:
    """Note that a response with room for more has no records, as for a damaged log."""
    end, offset = watermarks.high_watermark, state.fetch_offset
    if 0 <= watermarks.last_stable_offset < end:
        end = watermarks.last_stable_offset  # read_committed does not return later records
    if offset is None or end <= offset:
        state.withheld = None
    elif state.withheld is None or state.withheld[0] != offset:
        state.withheld = offset, at
