"""Acquired records of one partition and their acknowledgements, without I/O and clock.

Theory of operation. A leader locks records for this member until a deadline. It knows offsets only,
also those of markers and of compacted holes. So each acquired offset has a :class:`Hold` until its
last acknowledgement is answered, or until its lock is lost. Neighbouring offsets of one fetch share
a hold, and only what differs is kept for each offset: queues have many records. If one range is all
that is held, it has one byte for each offset, or nothing if it is acknowledged as such. A mark says
what becomes of an offset, and the latest mark counts until it is sent.

The first mark of such a range opens it. The caller may then set its bytes without the owner's lock,
by :func:`kohort.records.mark_open`. That is one step for other threads. To close the range is to
take its bytes away, and what was set before then counts.

All acknowledgements of a partition in one request are one unit for the leader: one bad offset
fails all. So an expired lock is never sent, and a refused unit is sent again in two halves, until
the bad offsets stand alone.

Invariants:

1. An offset is held at most once, and each hold gets one final acknowledgement, or is lost.
2. No acknowledgement is taken for sending at or after the deadline of its hold.
3. One unit of a partition is in flight at most.
4. A unit has ascending offsets, each once.
5. A renewal keeps the hold, with a deadline that counts from the sending of the renewal.
6. An offset that this member can no longer acknowledge is a :class:`Failure` once, if it was
   marked. A release whose lock has ended is none, because the record is free then. It is one if
   the leader has refused it.
7. Marks are in the bytes of an open range, or in ``marks``, never in both.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from operator import itemgetter
from typing import Final

from kohort.errors import ErrorCode
from kohort.types import NamedTuple, TopicPartition


class Acknowledgement(IntEnum):
    """Kafka's numbers for what becomes of an acquired record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class HoldState(IntEnum):
    """What has become of an acquired record."""

    HELD = 0
    """Acquired, without a mark, or with one that may still change."""
    SENT = 1
    """Its last acknowledgement is in flight."""
    DONE = 2
    """Its last acknowledgement was answered."""
    LOST = 3
    """Its lock is lost: expired, or ended with the session or the leader."""


class Hold:
    """The locks of neighbouring offsets that one fetch has acquired. Records refer to it."""

    __slots__ = (
        "deadline",
        "delivery_count",
        "first",
        "last",
        "lost",
        "open",
        "owner",
        "records",
        "renewed",
    )

    def __init__(
        self,
        records: AcquiredRecords,
        first: int,
        last: int,
        deadline: float,
        delivery_count: int,
    ) -> None:
        self.records: Final = records
        self.owner: Final = records.owner
        self.first: Final = first
        self.last: Final = last
        self.deadline: Final = deadline
        self.delivery_count: Final = delivery_count
        self.open: bytearray | None = None
        """The mark of each offset or 0, while single ones may be set without the owner's lock."""
        self.renewed: dict[int, float] = {}
        """Deadlines of renewed offsets."""
        self.lost: dict[int, Acknowledgement | None] = {}
        """Offsets whose locks are lost, with their marks."""

    def deadline_of(self, offset: int) -> float:
        """Return the deadline of one offset."""
        return self.renewed.get(offset, self.deadline)

    def state_of(self, offset: int) -> HoldState:
        """Return what has become of one offset."""
        if self.records.hold_at(offset) is self:
            return HoldState.SENT if self.records.is_sent(offset) else HoldState.HELD
        return HoldState.LOST if offset in self.lost else HoldState.DONE


class AcquiredRange(NamedTuple):
    """Offsets that a fetch has acquired."""

    first: int
    last: int
    delivery_count: int


class Failure(NamedTuple):
    """An acknowledgement without effect, or one whose effect is unknown. Code 0: the lock expired.

    Negative codes are errors of the connection.
    """

    offset: int
    code: int
    message: str | None = None


class AckRange(NamedTuple):
    """Neighbouring offsets with one type of acknowledgement."""

    first: int
    last: int
    type: Acknowledgement


class AckUnit(NamedTuple):
    """The acknowledgements of one partition in one request, as ascending ranges."""

    ranges: tuple[AckRange, ...]

    def offsets(self) -> Iterator[tuple[int, Acknowledgement]]:
        """Yield each offset with its acknowledgement."""
        for first, last, type in self.ranges:
            for offset in range(first, last + 1):
                yield offset, type

    @property
    def has_renewals(self) -> bool:
        """True if the request needs the flag of renewals."""
        return any(each.type is Acknowledgement.RENEW for each in self.ranges)


EXPIRED: Final = 0
DISCONNECTED: Final = -2

_TYPES: Final = tuple(Acknowledgement)
_FREES: Final = frozenset({Acknowledgement.GAP, Acknowledgement.RELEASE})
"""Types that want no more than the end of the lock."""

_SPLITS: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Codes of a unit of which single offsets may be good."""


class AcquiredRecords:
    """The holds of one partition at its leader."""

    def __init__(self, owner: object, partition: TopicPartition, node: int) -> None:
        """``owner`` is what the holds of one consumer belong to, and ``node`` the leader."""
        self.owner: Final = owner
        self.partition: Final = partition
        self.node: Final = node
        self.fetched_at: float = 0.0
        """When the latest fetch was sent that has acquired records, set by the owner."""
        self._holds: dict[int, Hold] = {}
        self._whole: Hold | None = None
        """The hold of all that is held, or None if ``_holds`` has the holds of single offsets."""
        self._whole_mark: Acknowledgement | None = None
        """The mark of all its offsets, until it is answered."""
        self.marks: dict[int, Acknowledgement] = {}
        """What is to be sent for marked offsets."""
        self._marked_at = 0.0
        """Time of the oldest of these marks."""
        self._halves: list[dict[int, Acknowledgement]] = []
        """Marks of refused units, to send again on their own."""
        self._overtaken: list[Failure] = []
        """Marks of holds that newer ones have replaced."""
        self._in_flight: AckUnit | None = None
        self._sent_at = 0.0

    def __len__(self) -> int:
        whole = self._whole
        return len(self._holds) + (0 if whole is None else whole.last - whole.first + 1)

    @property
    def holds(self) -> dict[int, Hold]:
        """The hold of each offset whose last acknowledgement has no answer."""
        if self._whole is not None:
            self._spread()
        return self._holds

    def _spread(self, marked: bytearray | None = None) -> None:
        """Keep a hold for each offset from now on. ``marked`` has the marks of a closed range."""
        whole, self._whole = self._whole, None
        mark, self._whole_mark = self._whole_mark, None
        assert whole is not None
        if marked is None:
            marked, whole.open = whole.open, None
        offsets = range(whole.first, whole.last + 1)
        self._holds |= dict.fromkeys(offsets, whole)
        if mark is not None and self._in_flight is None:
            self.marks |= dict.fromkeys(offsets, mark)
        elif marked is not None:
            self.marks |= {
                offset: _TYPES[type] for offset, type in zip(offsets, marked, strict=True) if type
            }

    def close_range(self) -> None:
        """Have no more marks set without the owner's lock. Those that were set are lost."""
        if (whole := self._whole) is not None:
            whole.open = None

    def _join(self) -> None:
        """Let the marks of an open range become one, if they are the same."""
        whole = self._whole
        if whole is None:
            return
        marked, whole.open = whole.open, None  # read after it is closed
        if marked is None:
            return
        if (type := marked[0]) and marked.count(type) == len(marked):
            self._whole_mark = _TYPES[type]
        else:
            self._spread(marked)

    @property
    def is_in_flight(self) -> bool:
        """True while an answer is expected."""
        return self._in_flight is not None

    @property
    def is_untouched(self) -> bool:
        """True if nothing is marked or in flight."""
        return self._in_flight is None and self.oldest_mark is None

    @property
    def is_idle(self) -> bool:
        """True if nothing is held, marked or in flight."""
        return not self._holds and self._whole is None and self._in_flight is None

    def is_sent(self, offset: int) -> bool:
        """Return True if the last acknowledgement of an offset is in flight."""
        if self._in_flight is None:
            return False
        ranges = self._in_flight.ranges
        at = bisect_right(ranges, offset, key=_first_of) - 1
        return (
            at >= 0 and offset <= ranges[at].last and ranges[at].type is not Acknowledgement.RENEW
        )

    def acquire(self, first: int, last: int, deadline: float, delivery_count: int) -> Hold:
        """Hold acquired offsets."""
        hold = Hold(self, first, last, deadline, delivery_count)
        if not self._holds and self._whole is None and self.is_untouched:
            self._whole = hold
            return hold
        self.overtake(first, last)
        if self._whole is not None:
            self._spread()
        self._holds |= dict.fromkeys(range(first, last + 1), hold)
        return hold

    def overtake(self, first: int, last: int) -> None:
        """Lose the holds of offsets that the leader has locked again, because their locks ended."""
        whole = self._whole
        if whole is not None and (last < whole.first or whole.last < first):
            return
        for offset in self.holds.keys() & range(first, last + 1):
            mark = self.mark_of(offset)
            if mark is not None and mark not in _FREES:
                self._overtaken.append(Failure(offset, EXPIRED))
            self.lose(offset)

    def take_overtaken(self) -> list[Failure]:
        """Return the marks that :meth:`overtake` has made void since the last call."""
        found, self._overtaken = self._overtaken, []
        return found

    def mark_of(self, offset: int) -> Acknowledgement | None:
        """Return the mark of an offset that is not sent, also of one that was refused."""
        whole = self._whole
        if whole is not None and (marked := whole.open) is not None:
            at = offset - whole.first
            return _TYPES[marked[at]] or None if 0 <= at < len(marked) else None
        found = self.marks.get(offset)
        if found is None and self._halves:
            found = next((half[offset] for half in self._halves if offset in half), None)
        return found

    def unmarked(self) -> Collection[int]:
        """Return the held offsets that have no mark, neither one to send nor one in flight."""
        if self._whole is not None and not self._halves:
            if self._whole_mark is not None:
                return ()
            offsets = range(self._whole.first, self._whole.last + 1)
            if (marks := self._whole.open) is None:
                return offsets
            return [offset for offset, type in zip(offsets, marks, strict=True) if not type]
        found = self.holds.keys() - self.marks.keys()
        for half in self._halves:
            found -= half.keys()
        if self._in_flight is not None:
            for first, last, type in self._in_flight.ranges:
                if type is not Acknowledgement.RENEW:
                    found.difference_update(range(first, last + 1))
        return found

    def unmarked_locks(self) -> tuple[int, float | None]:
        """Return how many held offsets have no mark, and their first deadline."""
        whole = self._whole
        if whole is not None and not self._halves:
            if self._whole_mark is not None:
                return 0, None
            marked = whole.open
            count = len(self) if marked is None else marked.count(0)
            return count, whole.deadline if count else None
        offsets = self.unmarked()
        holds = {self._holds[offset] for offset in offsets}
        deadlines = [hold.deadline for hold in holds if not hold.renewed]
        if len(deadlines) < len(holds):
            deadlines += [self._holds[offset].deadline_of(offset) for offset in offsets]
        return len(offsets), min(deadlines, default=None)

    def hold_at(self, offset: int) -> Hold | None:
        """Return the hold of an offset, or None."""
        whole = self._whole
        if whole is None:
            return self._holds.get(offset)
        return whole if whole.first <= offset <= whole.last else None

    def mark_whole(
        self, hold: Hold, type: Acknowledgement, now: float, *, before: float = 0.0
    ) -> bool:
        """Mark all offsets of a hold, as :meth:`mark_held` does one.

        Return False if something was done with any of them.
        """
        if self._whole is not hold or not self.is_untouched or now >= hold.deadline:
            return False
        assert type is not Acknowledgement.RENEW, "renewals keep a hold for each offset"
        self._whole_mark, self._marked_at = type, min(now, hold.deadline - before)
        return True

    def mark(self, offsets: Mapping[int, Acknowledgement], at: float) -> None:
        """Mark held offsets, as of a time. A later mark replaces one that is not sent yet."""
        if self._whole is not None:
            self._spread()
        self._marked_at = min(self._marked_at, at) if self.marks else at
        self.marks |= offsets

    def mark_unmarked(self, type: Acknowledgement, at: float) -> None:
        """Mark what has no mark yet, as of a time."""
        if self._whole is not None:
            self._spread()  # closes it, so that no mark is set after they are read
        self.mark(dict.fromkeys(self.unmarked(), type), at)

    def mark_held(
        self, offset: int, hold: Hold, type: Acknowledgement, now: float, *, before: float = 0.0
    ) -> bool:
        """Mark an offset. Return False if its lock is lost or expired, or its last mark sent.

        A mark in the last ``before`` seconds of its lock is as old as one at their begin.
        """
        is_whole = self._whole is hold and self._whole_mark is None and not self._halves
        if is_whole and type is not Acknowledgement.RENEW:
            if now >= hold.deadline:
                return False
            if (marked := hold.open) is None:
                marked = hold.open = bytearray(hold.last - hold.first + 1)
                self._marked_at = min(now, hold.deadline - before)
            marked[offset - hold.first] = type
            return True
        if self.holds.get(offset) is not hold:
            return False
        if self._in_flight is not None and self.is_sent(offset):
            return False
        deadline = hold.deadline_of(offset) if hold.renewed else hold.deadline
        if now >= deadline:
            return False
        at = deadline - before
        if now < at:
            at = now
        if not self.marks or at < self._marked_at:
            self._marked_at = at
        self.marks[offset] = type
        return True

    def lose(self, offset: int, mark: Acknowledgement | None = None) -> None:
        """Lose the hold of one offset, whose lock is gone, with the mark that was sent."""
        hold = self.holds.pop(offset)
        for marks in (self.marks, *self._halves):
            left = marks.pop(offset, None)
            mark = left if mark is None else mark
        hold.lost[offset] = mark

    @property
    def oldest_mark(self) -> float | None:
        """The time of the oldest mark that is not sent, or None. Refused ones are due at once."""
        if self._halves:
            return -math.inf
        if self._whole_mark is not None:
            return self._marked_at if self._in_flight is None else None
        if not self.marks and (self._whole is None or self._whole.open is None):
            return None
        return self._marked_at

    def take(self, now: float, *, with_renewals: bool = True) -> tuple[AckUnit, list[Failure]]:
        """Begin to send what is marked, and return it with the marks whose locks have expired."""
        assert self._in_flight is None
        if not self._halves:
            self._join()
        if self._whole is not None and self._whole_mark is not None:
            whole = self._whole
            if now < whole.deadline:
                unit = AckUnit((AckRange(whole.first, whole.last, self._whole_mark),))
                self._in_flight, self._sent_at = unit, now
                return unit, []
            self._spread()
        if self._halves:
            # A mark since then goes with it.
            half = self._halves.pop(0)
            chosen = {offset: self.marks.pop(offset, half[offset]) for offset in half}
        else:
            chosen, self.marks = self.marks, {}
        failures: list[Failure] = []
        ranges: list[AckRange] = []
        first = last = -2
        kind: Acknowledgement | None = None
        for offset in sorted(chosen):
            hold = self.holds.get(offset)
            if hold is None:
                continue
            type = chosen[offset]
            if now >= (hold.deadline_of(offset) if hold.renewed else hold.deadline):
                if type not in _FREES:
                    failures.append(Failure(offset, EXPIRED))
                self.lose(offset, type)
                continue
            if type is kind and offset == last + 1:
                last = offset
                continue
            if type is Acknowledgement.RENEW and not with_renewals:
                failures.append(Failure(offset, ErrorCode.UNSUPPORTED_VERSION))
                continue
            if kind is not None:
                ranges.append(AckRange(first, last, kind))
            first, last, kind = offset, offset, type
        if kind is not None:
            ranges.append(AckRange(first, last, kind))
        unit = AckUnit(tuple(ranges))
        self._in_flight, self._sent_at = unit if ranges else None, now
        return unit, failures

    def answered(self, code: int, message: str | None, lock_seconds: float) -> list[Failure]:
        """Note the answer to the unit in flight, and return the offsets that failed for good."""
        unit, self._in_flight = self._in_flight, None
        if unit is None:
            return []
        if self._whole_mark is not None:  # the unit is all that is held
            self._whole_mark = None
            if code == 0:
                self._whole = None
                return []
        if code == 0:
            for each in unit.ranges:
                self._settle(each, self._sent_at + lock_seconds)
            return []
        offsets = list(unit.offsets())
        if code in _SPLITS and len(offsets) > 1:
            middle = len(offsets) // 2
            self._halves += [dict(offsets[:middle]), dict(offsets[middle:])]
            return []
        failures = []
        for offset, type in offsets:
            if offset not in self.holds:
                continue
            if type is not Acknowledgement.GAP:
                failures.append(Failure(offset, code, message))
            if type is not Acknowledgement.RENEW:  # its lock would run on
                self.lose(offset, type)
        return failures

    def _settle(self, acknowledged: AckRange, renewed: float) -> None:
        first, last, type = acknowledged
        holds = self.holds
        if type is not Acknowledgement.RENEW:
            for offset in range(first, last + 1):
                holds.pop(offset, None)
            return
        for offset in range(first, last + 1):
            if (hold := holds.get(offset)) is not None:
                hold.renewed[offset] = renewed

    def void(self, code: int, message: str | None = None) -> list[Failure]:
        """Lose every hold, because the leader has forgotten the locks. Return what was marked."""
        if self._whole is not None:
            self._spread()
        lost = dict(self._in_flight.offsets()) if self._in_flight is not None else {}
        for half in self._halves:
            lost |= half
        lost |= self.marks
        self._in_flight = None
        self._halves.clear()
        failures = []
        for offset in list(self.holds):
            mark = lost.get(offset)
            if mark is not None and mark not in _FREES:
                failures.append(Failure(offset, code, message))
            self.lose(offset, mark)
        return failures


_first_of = itemgetter(0)
