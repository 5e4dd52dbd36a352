"""The buffer of completed fetches: filled by the core, drained by the caller.

Per partition there is a queue of what was fetched, in order: data, and what went wrong instead of
data. The core appends at the end; the caller takes from the front. The subscription's lock guards
the queues as well as the positions, so an append, a seek and a delivery never interleave.

A drain has two halves. First records are decoded, on the caller's thread and *without* the lock:
the fetches in hand are marked busy, so that nobody drops them meanwhile. Then, under the lock,
the positions move and the records are handed out, or dropped if the partition has moved on. Should
anything raise in between (Ctrl-C in a deserializer), all that was decoded goes back to the fetches.

What is wrong with one partition never costs another one anything: a drain that found records
returns them, and the error is raised by the next one. See :meth:`FetchBuffer.drain`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kohort.errors import KafkaError, OffsetOutOfRangeError
from kohort.fetcher._completed import CompletedFetch, FailedFetch
from kohort.fetcher._memory import FetchMemory
from kohort.fetcher._policy import ErrorPolicy, Item, OnError
from kohort.fetcher._sessions import Watermarks
from kohort.records import ConsumerRecord
from kohort.subscription import FetchTarget, OffsetReset, PartitionState, SubscriptionState
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.fetcher")

Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]

FETCHES_PER_PARTITION = 2
"""One being taken and one behind it: more would only be memory."""


@dataclass(slots=True)
class BufferCounters:
    """What went through the buffer since the start."""

    records_delivered: int = 0
    bytes_appended: int = 0
    dropped_stale: int = 0
    errors_raised: int = 0
    bytes_evicted: int = 0


@dataclass(slots=True)
class _Taken:
    """Records decoded in this drain, and what to restore if they are not handed out after all."""

    fetch: CompletedFetch
    records: list[ConsumerRecord[Any, Any]]
    moved: PartitionState | None = None
    position: int | None = None
    leader_epoch: int = -1


class FetchBuffer:
    """Completed fetches by partition. One thread appends, one thread drains."""

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
        """``max_bytes``: so much is read ahead; ``memory``: so much is held, whatever it is."""
        self.counters = BufferCounters()
        self.memory = memory or FetchMemory(1 << 62)
        self.policy = ErrorPolicy(subscription, on_error, on_room=on_room)
        self._subscription = subscription
        self._lock = subscription.lock
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._may_deliver = may_deliver
        self._queues: OrderedDict[TopicPartition, deque[Item]] = OrderedDict()  # under the lock
        self._fetcher_waits = False  # under the lock: with_room() left something out
        self._wanted: frozenset[TopicPartition] | None = None  # under the lock: None is all
        self._laggiest_first = laggiest_first
        self._by_lag = laggiest_first
        self._reported: KafkaError | None = None  # of no partition in particular
        self._owed: Item | None = None  # raised first by the next drain
        self._raises = 0

    # --- the core's side ------------------------------------------------------------------------

    def append(self, item: Item, *, at: float | None = None) -> bool:
        """Take what a fetch brought; False if it is stale. An empty one only updates the state."""
        tp = item.topic_partition
        with self._lock:
            state = self._subscription.current(tp, item.epoch)
            if state is None:
                self.counters.dropped_stale += 1
                item.release()
                return False
            queue = self._queues.setdefault(tp, deque())
            self._drop_done(tp, queue)
            if queue and isinstance(queue[-1], FailedFetch) and queue[-1].passing:
                queue.pop()  # it was tried again since
            if isinstance(item, FailedFetch):
                state.last_error = item.error
                queue.append(item)
                return True
            state.last_error = None
            state.fetched_at = at
            state.high_watermark = item.high_watermark
            state.last_stable_offset = item.last_stable_offset
            state.log_start_offset = item.log_start_offset
            if item.exhausted:
                item.release()
                return True
            state.fetch_offset = item.next_offset
            state.fetch_leader_epoch = item.last_leader_epoch
            self.counters.bytes_appended += item.size
            queue.append(item)
            return True

    def nothing_new(
        self, quiet: Iterable[tuple[TopicPartition, int, Watermarks]], at: float
    ) -> None:
        """The brokers have nothing to add to what they said of these (partition, epoch) before."""
        with self._lock:
            for tp, epoch, told in quiet:
                if state := self._subscription.current(tp, epoch):
                    queue = self._queues.get(tp)
                    if queue and isinstance(queue[-1], FailedFetch) and queue[-1].passing:
                        queue.pop()
                    state.last_error = None
                    state.fetched_at = at
                    state.high_watermark = told.high_watermark
                    state.last_stable_offset = told.last_stable_offset
                    state.log_start_offset = told.log_start_offset

    def report(self, error: KafkaError) -> None:
        """Have the next drain raise an error that concerns no partition in particular."""
        self._reported = error

    def note_error(self, tp: TopicPartition, epoch: int, error: KafkaError) -> None:
        """Remember an error that passes by itself, for who asks why nothing comes."""
        with self._lock:
            if state := self._subscription.current(tp, epoch):
                state.last_error = error

    def bytes_held(self) -> int:
        """Bytes of the batches that are not handed out yet."""
        with self._lock:
            return sum(item.size for queue in self._queues.values() for item in queue)

    def held(self) -> dict[TopicPartition, int]:
        """The same by partition."""
        with self._lock:
            return {tp: sum(item.size for item in queue) for tp, queue in self._queues.items()}

    def standing(self) -> dict[TopicPartition, KafkaError]:
        """The errors that only the caller can go on from, by partition."""
        with self._lock:
            return {
                tp: item.error
                for tp, queue in self._queues.items()
                for item in queue
                if item.error is not None and item.blocked and self._is_current(item)
            }

    def with_room(self, targets: Iterable[FetchTarget]) -> list[FetchTarget]:
        """Those of which more may be fetched: below their share of the buffer, and not blocked."""
        with self._lock:
            full = self._deliverable_bytes() >= self._max_bytes
            chosen = [target for target in targets if self._has_room(target, full)]
            return self._with_memory(chosen)

    def _with_memory(self, targets: list[FetchTarget]) -> list[FetchTarget]:
        """Those that there is memory for; what is held back is let go of if there is none."""
        memory = self.memory
        memory.queued = self._queued_bytes()
        if 2 * memory.taken < memory.limit:
            return targets
        if memory.full:
            self._evict()
            memory.queued = self._queued_bytes()
        if memory.full and self._deliverable_bytes():
            chosen = []
        else:  # whoever has nothing to take must get something
            chosen = [each for each in targets if self._is_wanted(each.topic_partition)]
        self._fetcher_waits = self._fetcher_waits or len(chosen) < len(targets)
        return chosen

    def _evict(self) -> None:
        """Drop what is over, and what is paused or not asked for beyond half of the memory.

        It is fetched again when it is wanted, so it costs time and never records.
        """
        held_back: dict[TopicPartition, int] = {}
        for tp, queue in self._queues.items():
            state = self._subscription.partition(tp)
            if state is not None and (state.paused or not self._is_wanted(tp)):
                held_back[tp] = sum(item.size for item in queue if item.epoch == state.epoch)
            self._drop_stale(tp, queue)
        excess = sum(held_back.values()) - self.memory.limit // 2
        for tp in sorted(held_back, key=held_back.__getitem__, reverse=True):
            state = self._subscription.partition(tp)
            if excess <= 0 or state is None:
                break
            excess -= held_back[tp]
            self.counters.bytes_evicted += held_back[tp]
            self._subscription.fetch_anew(state)
            self._drop_stale(tp, self._queues[tp])

    def _queued_bytes(self) -> int:
        queues = self._queues.values()
        return sum(item.size for queue in queues for item in queue if not item.exhausted)

    def _is_wanted(self, tp: TopicPartition) -> bool:
        return self._wanted is None or tp in self._wanted

    def _has_room(self, target: FetchTarget, full: bool) -> bool:
        queue = self._queues.get(target.topic_partition)
        mine = [i for i in queue or () if i.epoch == target.epoch and not i.exhausted]
        room = not mine or (
            len(mine) < FETCHES_PER_PARTITION and not full and not any(i.blocked for i in mine)
        )
        if not room:
            self._fetcher_waits = True
        return room

    def _deliverable_bytes(self) -> int:
        # What a pause or an error holds back must not keep the others from being fetched.
        total = 0
        for tp, queue in self._queues.items():
            state = self._subscription.partition(tp)
            deliverable = state is not None and state.deliverable and self._is_wanted(tp)
            if state is not None and deliverable and not any(item.blocked for item in queue):
                total += sum(item.size for item in queue if item.epoch == state.epoch)
        return total

    # --- the caller's side ----------------------------------------------------------------------

    def drain(
        self,
        max_records: int,
        partitions: Collection[TopicPartition] | None = None,
        *,
        repeat_errors: bool = True,
    ) -> Records:
        """Hand out up to ``max_records`` of what is there, moving the positions; maybe nothing.

        An error of a partition is raised once all records before it were handed out, and never
        together with records: if there are any (of other partitions), the *next* drain raises it,
        and the one after that hands out records again. It stands until the partition is sought
        past it (or paused, revoked): every drain that finds no records raises it anew, with
        ``repeat_errors=False`` only if it was not raised before. Who waits for records passes
        False until the time is up, and so neither spins nor misses the error. ``on_error`` is
        asked before, whenever something cannot be read.
        """
        if not self._may_deliver():
            return {}
        self._raise_owed(partitions)
        taken: list[_Taken] = []
        blocked: list[Item] = []
        overrun: list[FailedFetch] = []
        try:
            self._decode(max_records, partitions, taken, blocked, overrun, repeat_errors)
            records = self._deliver(taken)
        except BaseException:
            self._put_back(taken)
            raise
        for failed in overrun:
            self._reset(failed)
        if not blocked:
            return records  # without a call: Ctrl-C comes in calls
        settles = self.policy.settles
        if blocked := [it for it in blocked if not settles(it, records, repeat=repeat_errors)]:
            item = min(blocked, key=lambda item: item.raised)
            if records:
                self._owed = item
            elif repeat_errors or not item.raised:
                self._raise(item)
        return records

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            for queue in self._queues.values():
                for item in queue:
                    item.release()
            self._queues.clear()
            self._owed = self._reported = None

    def _raise_owed(self, partitions: Collection[TopicPartition] | None) -> None:
        if self._reported is not None:
            error, self._reported = self._reported, None
            self.counters.errors_raised += 1
            raise error
        item, self._owed = self._owed, None
        if item is None:
            return
        with self._lock:
            tp = item.topic_partition
            state = self._deliverable(tp, partitions)
            stands = (
                state is not None
                and state.epoch == item.epoch
                and item.error is not None
                and item in self._queues.get(tp, ())
            )
        if stands:
            self._raise(item)

    def _raise(self, item: Item) -> None:
        error = self.policy.to_raise(item)
        self._raises += 1
        item.raised = self._raises
        self.counters.errors_raised += 1
        if isinstance(item, FailedFetch) and item.passing:
            with self._lock:
                queue = self._queues.get(item.topic_partition)
                if queue and item in queue:
                    queue.remove(item)
        # The traceback of an earlier raise would grow with each poll.
        raise error.with_traceback(None)

    def _decode(
        self,
        max_records: int,
        partitions: Collection[TopicPartition] | None,
        taken: list[_Taken],
        blocked: list[Item],
        overrun: list[FailedFetch],
        repeat_errors: bool,
    ) -> None:
        """Take records of the partitions in turn; note the items that nothing gets past."""
        missing = max_records
        for tp in self._in_turn(partitions):
            index = 0
            while missing > 0 and (item := self._grasp(tp, index)) is not None:
                if isinstance(item, FailedFetch):
                    (overrun if self._is_reset(item) else blocked).append(item)
                    break
                found = _Taken(item, [])
                taken.append(found)
                found.records = item.take(missing)
                while item.error is not None and self.policy.passes(item, repeat=repeat_errors):
                    found.records += item.take(missing - len(found.records))
                missing -= len(found.records)
                if item.error is not None:
                    blocked.append(item)
                if not item.exhausted:
                    break
                index += 1

    def _in_turn(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        wanted = None if partitions is None else frozenset(partitions)
        with self._lock:
            held = self.memory.held
            for tp, queue in list(self._queues.items()):
                self._drop_done(tp, queue)
                if not queue:
                    del self._queues[tp]
                    self.policy.forget(tp)
            in_turn = [tp for tp in self._queues if self._deliverable(tp, partitions) is not None]
            if self._by_lag and in_turn:
                laggiest = max(in_turn, key=self._lag)
                in_turn = [laggiest, *(tp for tp in in_turn if tp != laggiest)]
            wake = self._fetcher_waits and (wanted != self._wanted or self.memory.held < held)
            if wake:
                self._fetcher_waits = False
            self._wanted = wanted
        if wake:
            self._on_room()
        return in_turn

    def _lag(self, tp: TopicPartition) -> int:
        state = self._subscription.partition(tp)
        assert state is not None
        return (state.high_watermark or 0) - (state.position or 0)

    def _deliverable(
        self, tp: TopicPartition, partitions: Collection[TopicPartition] | None
    ) -> PartitionState | None:
        state = self._subscription.partition(tp)
        if state is None or not state.deliverable:
            return None
        return state if partitions is None or tp in partitions else None

    def _grasp(self, tp: TopicPartition, index: int) -> Item | None:
        """The item at a place of the queue, marked busy so that an append does not drop it."""
        with self._lock:
            queue = self._queues.get(tp)
            if queue is None or index >= len(queue):
                return None
            item = queue[index]
            if self._subscription.current(tp, item.epoch) is None:
                return None
            if isinstance(item, CompletedFetch):
                item.busy = True
            return item

    def _is_reset(self, item: FailedFetch) -> bool:
        return (
            isinstance(item.error, OffsetOutOfRangeError)
            and not item.passing  # said of a fetch, not of the look-up that a reset is
            and self._subscription.default_reset != OffsetReset.NONE
        )

    def _reset(self, item: FailedFetch) -> None:
        """Answer an offset out of range by the policy, now that all before it is handed out."""
        with self._lock:
            state = self._subscription.current(item.topic_partition, item.epoch)
            if state is None:
                return
            self._subscription.start_reset(state)
        logger.warning("%s: resetting to %s", item.error, self._subscription.default_reset.value)
        self._on_room()

    def _deliver(self, taken: list[_Taken]) -> Records:
        """Move the positions and hand out what belongs to partitions that have not moved on."""
        result: Records = {}
        wake = False
        with self._lock:
            for found in taken:
                fetch, records = found.fetch, found.records
                fetch.busy = False
                tp = fetch.topic_partition
                state = self._subscription.current(tp, fetch.epoch)
                if state is None or not state.deliverable:
                    fetch.put_back(records)
                    found.records = []
                    continue
                found.position, found.leader_epoch = state.position, state.leader_epoch
                found.moved = state
                state.position = fetch.position
                if records:
                    state.leader_epoch = records[-1].leader_epoch
                    self._queues.move_to_end(tp)
                    result.setdefault(tp, []).extend(records)
                    self.counters.records_delivered += len(records)
                wake = wake or fetch.exhausted
            if result:  # every other turn is by order: nobody starves
                self._by_lag = self._laggiest_first and not self._by_lag
            wake = wake and self._fetcher_waits
            if wake:
                self._fetcher_waits = False
        if wake:
            self._on_room()
        return result

    def _put_back(self, taken: list[_Taken]) -> None:
        with self._lock:
            for found in reversed(taken):
                if found.moved is not None:
                    found.moved.position = found.position
                    found.moved.leader_epoch = found.leader_epoch
                found.fetch.put_back(found.records)
                found.fetch.busy = False

    def _is_current(self, item: Item) -> bool:
        return self._subscription.current(item.topic_partition, item.epoch) is not None

    def _drop_done(self, tp: TopicPartition, queue: deque[Item]) -> None:
        """Drop what is handed out, or was fetched under another epoch. The caller holds the lock.

        What is handed out is dropped by the next drain, not by its own, which may still be undone.
        """
        self._drop_stale(tp, queue)
        for item in [item for item in queue if not item.busy and item.exhausted]:
            queue.remove(item)
            item.release()

    def _drop_stale(self, tp: TopicPartition, queue: deque[Item]) -> None:
        state = self._subscription.partition(tp)
        epoch = state.epoch if state is not None else None
        for item in [item for item in queue if not item.busy and item.epoch != epoch]:
            self.counters.dropped_stale += 1
            queue.remove(item)
            item.release()
