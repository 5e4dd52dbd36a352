"""The queues of completed fetches: the core's side of the buffer.

Per partition there is a queue of what was fetched, in order: data, and what went wrong instead of
data. The subscription's lock guards the queues as well as the positions.
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
"""One being taken and one behind it: more would only be memory."""
FETCHES_PER_TABLE = 4
"""The same of each partition where a table takes all that is there."""
AMPLE_FACTOR = 4
"""Times :attr:`PartitionQueues.read_ahead`. With so much to take, even an empty partition waits."""


class BufferCounters:
    """What went through the buffer since the start."""

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
    """Appended to by the core, and asked by it what there is room for."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        memory: FetchMemory | None = None,
    ) -> None:
        """``max_bytes``: see :attr:`read_ahead`; ``memory``: so much is held, whatever it is."""
        self.counters: BufferCounters = BufferCounters()
        self.memory: FetchMemory = memory or FetchMemory(1 << 62)
        self._subscription = subscription
        self._lock = subscription.lock
        self.read_ahead = max_bytes
        """Bytes to have for the caller before a partition is fetched twice."""
        self.is_ample: bool = False
        """True if so much is buffered that no partition needs a fetch, as of update_limits()."""
        self._on_room = on_room
        self._queues: OrderedDict[TopicPartition, deque[Item]] = OrderedDict()  # under the lock
        self._is_fetcher_waiting = False  # under the lock: something was left out for want of room
        self._is_full = False  # under the lock: as much is read ahead as may be
        self.allowed: Collection[TopicPartition] | None = None
        """The partitions that there is memory for, as of update_limits(); None for all."""
        self._wanted: frozenset[TopicPartition] | None = None  # under the lock: None is all
        self._max_fetches = FETCHES_PER_PARTITION
        self._reported: KafkaError | None = None  # of no partition in particular

    def append(self, item: Item, *, at: float = 0.0, had_room: bool = False) -> bool:
        """Take what a fetch brought; False if it is stale. An empty one only updates the state.

        ``had_room``: the answer could have brought more.
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
                queue.pop()  # it was tried again since
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
        """The brokers have nothing to add to what they said of these (partition, epoch) before."""
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
        """Have the next drain raise an error that concerns no partition in particular."""
        self._reported = error

    def note_error(self, tp: TopicPartition, epoch: int, error: KafkaError) -> None:
        """Remember an error that passes by itself, for who asks why nothing comes."""
        with self._lock:
            if state := self._subscription.partition_at(tp, epoch):
                state.last_error = error

    def bytes_buffered(self) -> int:
        """Bytes of the batches that are not handed out yet."""
        with self._lock:
            return sum(_size(queue) for queue in self._queues.values())

    def bytes_by_partition(self) -> dict[TopicPartition, int]:
        """The same by partition."""
        with self._lock:
            return {tp: _size(queue) for tp, queue in self._queues.items()}

    def permanent_errors(self) -> dict[TopicPartition, KafkaError]:
        """The errors that only the caller can go on from, by partition."""
        with self._lock:
            return {
                tp: item.error
                for tp, queue in self._queues.items()
                for item in queue
                if item.error is not None and item.is_blocked and self._is_current(item)
            }

    def update_limits(self) -> None:
        """Count what is there before partitions are chosen. The caller holds the lock."""
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
        # Whoever has nothing to take must get something.
        self.allowed = frozenset() if memory.is_full and deliverable else self._wanted
        if self.allowed is not None:
            self._is_fetcher_waiting = True

    def has_room(self, target: FetchTarget) -> bool:
        """More of the partition may be fetched: it is below its share, and not blocked.

        As of update_limits(). The caller holds the lock; the next drain that makes room says so.
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
        """Some partition still waits for room: a drain is to say so. The caller holds the lock."""
        self._is_fetcher_waiting = True

    def _evict(self) -> None:
        """Drop what is over, and what is paused or not asked for beyond half of the memory.

        It is fetched again when it is wanted, so it costs time and never records.
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
        """Bytes that are not handed out yet, and of these those that the caller may take now.

        What a pause or an error holds back must not keep the others from being fetched.
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
        """Drop what is handed out, or was fetched under another epoch. The caller holds the lock.

        What is handed out is dropped by the next drain, not by its own, which may still be undone.
        """
        state = self._subscription.partition(tp)
        if queue and state is not None and queue[0].epoch == state.epoch:
            if not queue[0].is_exhausted:
                return  # nor is anything behind it over: they are taken in their order
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
    """Bytes that are not handed out yet."""
    return sum([item.size for item in queue if not item.is_exhausted])


def _note_watermarks(state: PartitionState, watermarks: Watermarks, at: float) -> None:
    """What a broker said of a partition without an error."""
    state.last_error = None
    state.fetched_at = at
    state.high_watermark = watermarks.high_watermark
    state.last_stable_offset = watermarks.last_stable_offset
    state.log_start_offset = watermarks.log_start_offset


def _note_withheld(state: PartitionState, watermarks: Watermarks, at: float) -> None:
    """It gave nothing of it, with room for more: as brokers do where a log is damaged."""
    end, offset = watermarks.high_watermark, state.fetch_offset
    if 0 <= watermarks.last_stable_offset < end:
        end = watermarks.last_stable_offset  # what is behind that may be kept back
    if offset is None or end <= offset:
        state.withheld = None
    elif state.withheld is None or state.withheld[0] != offset:
        state.withheld = offset, at
