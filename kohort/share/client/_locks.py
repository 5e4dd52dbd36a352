"""The acquired records of a share consumer, with the buffer of fetches that no poll has taken.

The event loop of the engine adds fetches and takes acknowledgements. The caller takes fetches and
marks records, on its own thread. So one lock guards all of it, except marks of an open range (see
AcquiredRecords). Nothing waits or decodes under it. Marks that no caller has made are as old as
their fetch, because much of its lock may have passed before the poll. A mark that comes late in its
lock is older than it is, too. So it is due before the lock ends.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final
from weakref import WeakSet

from kohort.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    broker_error,
    error_name,
)
from kohort.records import ConsumerRecord
from kohort.share.machine._acquired import (
    DISCONNECTED,
    EXPIRED,
    Acknowledgement,
    AckUnit,
    AcquiredRange,
    AcquiredRecords,
    Failure,
    Hold,
    HoldState,
)
from kohort.share.machine._membership import IdPartition
from kohort.types import TopicPartition, escaped

FRESH_SHARE: Final = 0.5
"""Share of the lock that a fetch may wait for a poll. Older ones are released unseen."""
SEND_SHARE: Final = 1 / 3
"""Share of the lock after which a mark is sent without a poll."""
URGENT_SHARE: Final = 1 / 3
"""Share of the lock at its end in which marks are sent at once."""
OLD_SHARE: Final = SEND_SHARE + URGENT_SHARE
"""Share of the lock at its end in which a mark is as old as one at the begin of this share.

So it is due when the urgent share begins.
"""


def are_range(records: Sequence[ConsumerRecord[Any, Any]], first: int, last: int) -> bool:
    """Return True if records in the order of a log are those of all these offsets."""
    return (
        len(records) == last - first + 1
        and records[0].offset == first
        and records[-1].offset == last
    )


class Fetched:
    """The acquired records of one partition from one response, undecoded."""

    __slots__ = ("data", "deadline", "is_void", "key", "node", "partition", "ranges", "sent_at")

    def __init__(
        self,
        key: IdPartition,
        partition: TopicPartition,
        node: int,
        ranges: tuple[AcquiredRange, ...],
        data: memoryview,
        sent_at: float,
        deadline: float,
    ) -> None:
        self.key: Final = key
        self.partition: Final = partition
        self.node: Final = node
        self.ranges: tuple[AcquiredRange, ...] = ranges
        self.data: Final = data
        self.sent_at: Final = sent_at
        self.deadline: Final = deadline
        self.is_void: bool = False
        """True if the leader has forgotten the locks."""

    def offsets(self) -> set[int]:
        """Return the acquired offsets."""
        return {offset for first, last, _ in self.ranges for offset in range(first, last + 1)}

    @property
    def size(self) -> int:
        """The number of acquired offsets."""
        return sum(last - first + 1 for first, last, _ in self.ranges)

    def is_whole(self, records: Sequence[ConsumerRecord[Any, Any]]) -> bool:
        """Return True if these records are one acquired range without gaps."""
        first, last, _ = self.ranges[0]
        return len(self.ranges) == 1 and are_range(records, first, last)


class Locks:
    """All acquired records of one share consumer. ``clock`` is that of the engine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock: Callable[[], float] = clock
        self.seconds: float = 30.0
        """Duration of a lock, from the latest response."""
        self._lock = threading.Lock()
        self._homes: dict[IdPartition, AcquiredRecords] = {}
        self._keys: dict[TopicPartition, IdPartition] = {}
        self._buffer: deque[Fetched] = deque()
        self._taken: list[Fetched] = []
        """Fetches that the caller decodes now."""
        self._taken_at = 0.0
        self._acquired_before = 0
        """When the caller has taken the latest fetches, and ``acquired`` at that time."""
        self._failures: dict[TopicPartition, dict[int, KafkaError]] = {}
        self.has_urgent: bool = False
        """True if the caller has made a mark that may be due before the next look. It clears it."""
        self.acquired: int = 0
        self.acknowledged: int = 0
        self.failed: int = 0
        _all_locks.add(self)

    # -- the caller's side --------------------------------------------------------------------

    def take(self) -> list[Fetched]:
        """Return the buffered fetches that are fresh, and release the others."""
        with self._lock:
            now = self.clock()
            self._release_stale(now)
            self._taken = list(self._buffer)
            self._buffer.clear()
            self._taken_at, self._acquired_before = now, self.acquired
            return list(self._taken)

    def put_back(self, fetched: Iterable[Fetched]) -> None:
        """Buffer taken fetches again, in front of newer ones."""
        with self._lock:
            self._taken = []
            self._buffer.extendleft(reversed([each for each in fetched if not each.is_void]))

    def split(self, fetched: Fetched, offset: int) -> Fetched:
        """Cut a taken fetch before an offset. Return its other part, which is taken, too."""
        with self._lock:
            ranges = fetched.ranges
            fetched.ranges = tuple(
                each._replace(last=min(each.last, offset - 1))
                for each in ranges
                if each.first < offset
            )
            rest = Fetched(
                fetched.key,
                fetched.partition,
                fetched.node,
                tuple(
                    each._replace(first=max(each.first, offset))
                    for each in ranges
                    if each.last >= offset
                ),
                fetched.data,
                fetched.sent_at,
                fetched.deadline,
            )
            rest.is_void = fetched.is_void or not rest.ranges
            self._taken.append(rest)
            return rest

    def hold(self, fetched: Fetched, gaps: Set[int]) -> dict[int, Hold]:
        """Hold the offsets of a fetch, and acknowledge the gaps. Return the holds by offset.

        A fetch whose locks are lost meanwhile has no holds.
        """
        with self._lock:
            self._end_decoding(fetched)
            if fetched.is_void:
                return {}
            records = self._home_of(fetched)
            holds = self._acquire(records, fetched)
            if gaps:
                records.mark(dict.fromkeys(gaps, Acknowledgement.GAP), fetched.sent_at)
                for offset in gaps:
                    holds.pop(offset, None)
            self.acquired += len(holds)
            return holds

    def hold_whole(self, fetched: Fetched) -> Hold | None:
        """Hold a fetch of one range in which each offset has a record. None if it is void."""
        with self._lock:
            self._end_decoding(fetched)
            if fetched.is_void:
                return None
            first, last, count = fetched.ranges[0]
            records = self._home_of(fetched)
            hold = records.acquire(first, last, fetched.deadline, count)
            self._fail(fetched.partition, records.take_overtaken())
            self.acquired += last - first + 1
            return hold

    def _end_decoding(self, fetched: Fetched) -> None:
        if fetched in self._taken:
            self._taken.remove(fetched)

    def _acquire(self, records: AcquiredRecords, fetched: Fetched) -> dict[int, Hold]:
        holds: dict[int, Hold] = {}
        for first, last, count in fetched.ranges:
            hold = records.acquire(first, last, fetched.deadline, count)
            holds |= dict.fromkeys(range(first, last + 1), hold)
        self._fail(fetched.partition, records.take_overtaken())
        return holds

    def mark(self, offset: int, hold: Hold, type: Acknowledgement) -> bool:
        """Mark an offset. A lost lock becomes a failure that the next commit names.

        Return False if the offset has its last acknowledgement already, or another consumer has
        acquired it.
        """
        if hold.owner is not self:
            return False
        with self._lock:
            now = self.clock()
            seconds = self.seconds
            if hold.records.mark_held(offset, hold, type, now, before=seconds * OLD_SHARE):
                if hold.deadline - now < seconds * URGENT_SHARE:  # unless it is renewed
                    self._note_urgency(hold.deadline_of(offset), now)
                return True
            return self._mark_late(offset, hold, type, now)

    def mark_whole(self, hold: Hold, type: Acknowledgement) -> bool:
        """Mark all offsets of a hold. Return False if something was done with any of them."""
        with self._lock:
            now = self.clock()
            self._note_urgency(hold.deadline, now)
            return hold.records.mark_whole(hold, type, now, before=self.seconds * OLD_SHARE)

    def mark_rest(self, holds: Mapping[int, Hold], type: Acknowledgement) -> None:
        """Mark the offsets that have no mark yet, as :meth:`mark` does."""
        with self._lock:
            now = self.clock()
            for offset, hold in holds.items():
                records = hold.records
                if records.holds.get(offset) is not hold:
                    if hold.lost.get(offset, type) is None:
                        self._mark_late(offset, hold, type, now)
                elif records.mark_of(offset) is None and not records.is_sent(offset):
                    if now < (deadline := hold.deadline_of(offset)):
                        records.mark({offset: type}, min(now, deadline - self.seconds * OLD_SHARE))
                        self._note_urgency(deadline, now)
                    else:
                        self._mark_late(offset, hold, type, now)

    def _note_urgency(self, deadline: float, now: float) -> None:
        if deadline - now < self.seconds * URGENT_SHARE:
            self.has_urgent = True

    def _mark_late(self, offset: int, hold: Hold, type: Acknowledgement, now: float) -> bool:
        """Note a mark without effect. Return False if the last one was sent."""
        records = hold.records
        state = hold.state_of(offset)
        if state in (HoldState.SENT, HoldState.DONE):
            return False
        is_lost = state is HoldState.LOST
        mark = hold.lost[offset] if is_lost else records.mark_of(offset)
        if mark in (None, Acknowledgement.RENEW):
            # A failed renewal must not hide that the acknowledgement after it fails, too.
            if type is not Acknowledgement.RELEASE:
                code = EXPIRED if now >= hold.deadline_of(offset) else DISCONNECTED
                self._fail(records.partition, [Failure(offset, code)])
            if is_lost:
                hold.lost[offset] = type
            else:
                records.lose(offset, type)
        return True

    def close_ranges(self) -> None:
        """Have every mark come by :meth:`mark` from now on, because the consumer ends.

        It takes no lock, because another thread may have held that during a fork.
        """
        for home in list(self._homes.values()):
            home.close_range()

    def find(self, partition: TopicPartition, offset: int) -> Hold | None:
        """Return the hold of an offset, or None."""
        with self._lock:
            key = self._keys.get(partition)
            home = None if key is None else self._homes.get(key)
            return None if home is None else home.hold_at(offset)

    def is_fresh(self, offset: int, hold: Hold) -> bool:
        """Return True unless a record has waited for half of its lock."""
        return hold.deadline_of(offset) - self.clock() > self.seconds * (1 - FRESH_SHARE)

    def take_failures(self) -> dict[TopicPartition, dict[int, KafkaError]]:
        """Return the acknowledgements that failed since the last call."""
        with self._lock:
            found, self._failures = self._failures, {}
            return found

    def counts(self) -> tuple[int, int]:
        """Return how many offsets are held, and how many of them wait for a poll."""
        with self._lock:
            held = sum(map(len, self._homes.values()))
            buffered = sum(each.size for each in self._buffer)
            return held + buffered, buffered

    def unmarked(self) -> tuple[int, float | None]:
        """Return how many returned records have no mark, and the first deadline of these."""
        with self._lock:
            return self._unmarked()

    def _unmarked(self) -> tuple[int, float | None]:
        found = [home.unmarked_locks() for home in self._homes.values()]
        deadlines = [deadline for _, deadline in found if deadline is not None]
        return sum(count for count, _ in found), min(deadlines, default=None)

    def finished_in(self, seconds: float) -> int:
        """Return how many records the caller finishes in a time, at the pace of its last poll.

        It is at most twice as many as that poll returned. It is 0 while one of these has no final
        mark, and after a lock was lost.
        """
        with self._lock:
            count = self.acquired - self._acquired_before
            is_done = not (self._taken or self._unmarked()[0]) and not any(
                Acknowledgement.RENEW in home.marks.values() for home in self._homes.values()
            )
            if count == 0 or not is_done:
                return 0
            passed = self.clock() - self._taken_at
            return 2 * count if passed <= seconds / 2 else int(seconds / passed * count)

    # -- the engine's side --------------------------------------------------------------------

    @property
    def has_buffered(self) -> bool:
        """True if a fetch waits for a poll."""
        return bool(self._buffer)

    def add(self, fetched: Fetched) -> None:
        """Buffer a fetch.

        A fetch from another leader ends the locks of the one before. The later leader is the one
        whose fetch was sent later, because a response of the old leader may come last.
        """
        with self._lock:
            key, node = fetched.key, fetched.node
            others = [
                each
                for each in (*self._buffer, *self._taken)
                if each.key == key and each.node != node and not each.is_void
            ]
            times = [each.sent_at for each in others]
            home = self._homes.get(key)
            if home is not None and home.node != node:
                times.append(home.fetched_at)
            if times:
                if fetched.sent_at < max(times):
                    return
                self._void_fetches(others)
            if home is not None and home.node != node:
                self._void(key, DISCONNECTED, None)
            elif home is not None:
                # A mark of an ended lock that waits here must not be sent for the new lock.
                for first, last, _ in fetched.ranges:
                    home.overtake(first, last)
                self._fail(fetched.partition, home.take_overtaken())
            self._buffer.append(fetched)

    def release_stale(self, now: float) -> None:
        """Release the fetches that have waited too long for a poll."""
        with self._lock:
            self._release_stale(now)

    def _release_stale(self, now: float) -> None:
        fresh_for = self.seconds * (1 - FRESH_SHARE)
        for fetched in [each for each in self._buffer if each.deadline - now <= fresh_for]:
            self._buffer.remove(fetched)
            self._release(fetched)

    def _release(self, fetched: Fetched) -> None:
        """Release a fetch unseen."""
        records = self._home_of(fetched)
        offsets = self._acquire(records, fetched)
        records.mark(dict.fromkeys(offsets, Acknowledgement.RELEASE), fetched.sent_at)

    def release_buffered(self) -> None:
        """Release all fetches that no poll has taken."""
        with self._lock:
            while self._buffer:
                self._release(self._buffer.popleft())

    def release_rest(self, node: int, kept: Set[IdPartition]) -> None:
        """Release what has no mark yet at a leader, except in the partitions that are kept."""
        with self._lock:
            now = self.clock()
            for key, home in self._homes.items():
                if home.node == node and key not in kept:
                    home.mark_unmarked(Acknowledgement.RELEASE, now)

    def nodes(self) -> frozenset[int]:
        """Return the leaders that hold records for this member, also those not decoded yet."""
        with self._lock:
            busy = {home.node for home in self._homes.values() if not home.is_idle}
            busy.update(each.node for each in (*self._buffer, *self._taken) if not each.is_void)
            return frozenset(busy)

    @property
    def has_records(self) -> bool:
        """True if a leader holds records for this member."""
        return bool(self._buffer or self.nodes())

    def has_marks(self, node: int, *, older_than: float | None = None) -> bool:
        """Return True if marks of a leader are not sent, or are older than a time."""
        with self._lock:
            for home in self._homes.values():
                oldest = home.oldest_mark if home.node == node else None
                if oldest is not None and (older_than is None or oldest <= older_than):
                    return True
            return False

    @property
    def is_settled(self) -> bool:
        """True if every mark is sent and answered."""
        return not self.unsettled()

    def unsettled(self) -> list[TopicPartition]:
        """Return the partitions with marks that are not sent or not answered."""
        with self._lock:
            return [
                home.partition
                for home in self._homes.values()
                if home.oldest_mark is not None or home.is_in_flight
            ]

    def take_units(self, node: int, *, with_renewals: bool = True) -> dict[IdPartition, AckUnit]:
        """Begin to send the marks of one leader."""
        with self._lock:
            now = self.clock()
            units = {}
            for key, home in list(self._homes.items()):
                if home.node != node or home.oldest_mark is None:
                    continue
                unit, failures = home.take(now, with_renewals=with_renewals)
                self._fail(home.partition, failures)
                if unit.ranges:
                    units[key] = unit
            return units

    def answered(self, node: int, key: IdPartition, code: int, message: str | None) -> None:
        """Note the answer of a leader to the acknowledgements of one partition."""
        with self._lock:
            if code in _LOST_LEADERS:
                self._void_at(node, key, code, message)
                return
            home = self._homes.get(key)
            if home is None or home.node != node:
                return  # another leader has locked records since
            before = len(home)
            self._fail(home.partition, home.answered(code, message, self.seconds))
            if code == 0:
                self.acknowledged += before - len(home)

    def void(self, node: int, code: int, message: str | None = None) -> None:
        """Lose all locks of one leader."""
        with self._lock:
            fetches = (*self._buffer, *self._taken)
            self._void_fetches(each for each in fetches if each.node == node)
            for key in [key for key, home in self._homes.items() if home.node == node]:
                self._void(key, code, message)

    def void_partition(
        self, node: int, key: IdPartition, code: int, message: str | None = None
    ) -> None:
        """Lose the locks of one partition at a node, because it has another leader."""
        with self._lock:
            self._void_at(node, key, code, message)

    def _void_at(self, node: int, key: IdPartition, code: int, message: str | None) -> None:
        fetches = (*self._buffer, *self._taken)
        self._void_fetches(each for each in fetches if each.key == key and each.node == node)
        home = self._homes.get(key)
        if home is not None and home.node == node:
            self._void(key, code, message)

    def _void_fetches(self, lost: Iterable[Fetched]) -> None:
        for each in lost:
            each.is_void = True
        self._buffer = deque(each for each in self._buffer if not each.is_void)

    def _void(self, key: IdPartition, code: int, message: str | None) -> None:
        home = self._homes.pop(key, None)
        self._acquired_before = self.acquired
        if home is not None:
            self._keys.pop(home.partition, None)
            self._fail(home.partition, home.void(code, message))

    def _home_of(self, fetched: Fetched) -> AcquiredRecords:
        home = self._homes.get(fetched.key)
        if home is None:
            home = self._homes[fetched.key] = AcquiredRecords(self, fetched.partition, fetched.node)
            self._keys[fetched.partition] = fetched.key
        home.fetched_at = fetched.sent_at
        return home

    def _fail(self, partition: TopicPartition, failures: Iterable[Failure]) -> None:
        for offset, code, message in failures:
            self.failed += 1
            error = _error(partition, offset, code, message)
            self._failures.setdefault(partition, {})[offset] = error


_all_locks: WeakSet[Locks] = WeakSet()


def _close_all_ranges() -> None:
    for locks in list(_all_locks):
        locks.close_ranges()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_close_all_ranges)  # where accept() is refused

_LOST_LEADERS: Final = frozenset({3, 6, 74, 100})
"""Codes of acknowledgements whose locks are gone: the partition has another leader, or none."""


def _error(partition: TopicPartition, offset: int, code: int, message: str | None) -> KafkaError:
    where = f"{partition.topic}-{partition.partition} offset {offset}"
    if code == EXPIRED:
        return KafkaTimeoutError(
            f"the lock of {where} expired before its acknowledgement was sent, so the record is "
            "delivered again. Raise share.record.lock.duration.ms of the group, or renew the record"
        )
    if code == DISCONNECTED:
        return KafkaConnectionError(
            f"the lock of {where} ended with the session at its leader, so the record may be "
            "delivered again"
        )
    said = f" The broker's message is: {escaped(message)}" if message else ""
    return broker_error(
        code, f"the acknowledgement of {where} failed with {error_name(code)}.{said}"
    )
