"""The limits of the buffer: the partitions that may be fetched before the caller takes more."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TypeAlias

from kohort.fetcher.buffer._error_policy import Item
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.subscription import FetchTarget, SubscriptionState
from kohort.types import TopicPartition

Queue: TypeAlias = deque[Item]

FETCHES_PER_PARTITION = 2
"""Buffered fetches of one partition: one that the caller takes, and the next one."""
FETCHES_PER_TABLE = 4
"""Buffered fetches of one partition for tables, which take all buffered rows."""
AMPLE_FACTOR = 4
"""Multiple of :attr:`BufferLimits.read_ahead` from which even empty partitions wait."""


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


class BufferLimits:
    """The limits of fetches by partition, of bytes to read ahead, and of memory.

    The subscription's lock guards all state. The caller of a method holds it.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        queues: Mapping[TopicPartition, Queue],
        counters: BufferCounters,
        *,
        max_bytes: int,
        memory: FetchMemory | None = None,
    ) -> None:
        """Set :attr:`read_ahead` to ``max_bytes``. ``memory`` limits all buffered bytes."""
        self.memory: FetchMemory = memory or FetchMemory(1 << 62)
        self.read_ahead = max_bytes
        """Bytes to buffer for the caller before a partition is fetched a second time."""
        self.fetches_per_partition: int = FETCHES_PER_PARTITION
        """Buffered fetches of one partition from which it waits."""
        self.wanted: frozenset[TopicPartition] | None = None
        """The partitions of the latest drain, or None for all."""
        self.is_ample: bool = False
        """True if no partition needs a fetch, as of the latest update()."""
        self.allowed: Collection[TopicPartition] | None = None
        """The partitions with memory for a fetch, as of the latest update(), or None for all."""
        self.is_fetcher_waiting: bool = False
        """True if a partition waits for room, so a drain that makes room calls ``on_room``."""
        self._subscription = subscription
        self._queues = queues
        self._counters = counters
        self._is_full = False  # read_ahead bytes are buffered for the caller

    def has_room(self, target: FetchTarget) -> bool:
        """True if the partition may be fetched, as of the latest update().

        It must be below its limit of fetches and not blocked. The next drain that makes room
        calls ``on_room``.
        """
        queue = self._queues.get(target.topic_partition)
        if not queue:
            return True
        current, is_blocked = 0, False
        for item in queue:
            if item.epoch == target.epoch and not item.is_exhausted:
                current += 1
                is_blocked = is_blocked or item.is_blocked
        room = not current or (
            current < self.fetches_per_partition and not self._is_full and not is_blocked
        )
        if not room:
            self.is_fetcher_waiting = True
        return room

    def stop_waiting(self) -> bool:
        """Return True if the fetcher waited for room, and note that it no longer waits."""
        was_waiting, self.is_fetcher_waiting = self.is_fetcher_waiting, False
        return was_waiting

    def update(self) -> None:
        """Count the buffered bytes before partitions are chosen, and evict if memory is full."""
        memory = self.memory
        memory.buffered_bytes, deliverable = self._count_bytes()
        full = deliverable >= self.read_ahead
        self.is_ample = deliverable >= AMPLE_FACTOR * self.read_ahead
        if self.is_ample:
            self.is_fetcher_waiting = True
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
        self.allowed = frozenset() if memory.is_full and deliverable else self.wanted
        if self.allowed is not None:
            self.is_fetcher_waiting = True

    def drop_stale(self, tp: TopicPartition, queue: Queue) -> None:
        """Drop the fetches of another epoch, unless a drain uses them."""
        state = self._subscription.partition(tp)
        epoch = state.epoch if state is not None else None
        for item in [item for item in queue if not item.is_busy and item.epoch != epoch]:
            item.release()
            self._counters.dropped_stale += 1
            queue.remove(item)  # last, because Ctrl-C may come in release()

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
            self.drop_stale(tp, queue)
        excess = sum(evictable.values()) - self.memory.limit // 2
        for tp in sorted(evictable, key=evictable.__getitem__, reverse=True):
            state = self._subscription.partition(tp)
            if excess <= 0 or state is None:
                break
            excess -= evictable[tp]
            self._counters.bytes_evicted += evictable[tp]
            self._subscription.refetch_from(state)
            self.drop_stale(tp, self._queues[tp])

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self.wanted is None or tp in self.wanted

    def _count_bytes(self) -> tuple[int, int]:
        """Return the bytes that are not delivered, and the bytes that the caller may take now.

        A pause or an error of one partition must not stop fetches of the others.
        """
        queued = deliverable = 0
        for tp, queue in self._queues.items():
            size = undelivered_bytes(queue)
            if not size:
                continue
            queued += size
            state = self._subscription.partition(tp)
            if state is None or not state.is_deliverable or not self._is_wanted(tp):
                continue
            for item in queue:
                if item.epoch != state.epoch or item.is_blocked:
                    break
            else:
                deliverable += size
        return queued, deliverable


def undelivered_bytes(queue: Queue) -> int:
    """Return the bytes of the batches in a queue that are not delivered yet."""
    size = 0
    for item in queue:
        if not item.is_exhausted:
            size += item.size
    return size
