"""The share-partition of a leader: which records are out, with whom, and how often they were.

A group reads a partition as a queue. The leader hands out each record to one member, under a lock
that ends after a time. Members acknowledge records, and the others come again. Kafka's KIP-932
describes it.

Theory of operation
-------------------

The *window* is from ``start`` to ``end``. Records below it are over, and those above it were never
delivered. In the window are batches in flight (:mod:`_in_flight`). Events move their records
through these states::

    AVAILABLE -> ACQUIRED -> ACKNOWLEDGED      accepted
                          -> AVAILABLE         released, or the lock has expired
                          -> ARCHIVED          rejected, a gap, or the last attempt has failed
                          -> ARCHIVING -> ARCHIVED    the same, with a dead letter in between

The machine has no clock and no I/O. A fetch asks for ``next_fetch_offset()`` and ``has_room()``,
reads the log, and gives the batches that it has read to ``acquire()``. All other changes take two
steps. First a method returns a ``Change``. The driver writes ``change.batches`` with the present
``start``, and only then calls ``apply()``. So a failed write changes nothing.

After a load, records between the stored batches are unknown to the machine. They are *gaps* until
a read has passed them: a fetch reads them like new records.

Invariants
----------

1. No offset is ACQUIRED by two members at once.
2. ``start`` never falls, except by a new machine. It passes only offsets that are over, holes, and
   what the log has deleted.
3. The delivery count of an offset grows by one with each acquisition and never falls.
4. A write precedes its response: ``apply()`` follows the write, and ``start`` moves last.
   So the written start is the one before the write, and a replay moves on over what is over.
5. An ``AckError`` changes nothing, except locks that were renewed before the wrong offset.
6. ``complete`` is the number of offsets in the window that are over.
7. The window has at most ``max_locks`` offsets at an acquisition, plus the rest of a record batch.
8. Batches in flight are in order and do not overlap. One that lies below ``start`` is there only
   while it is acquired.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from kohort.broker.share._in_flight import Delivery, InFlightBatch, Unit
from kohort.broker.share._state_batches import joined
from kohort.broker.share._values import (
    Ack,
    AckError,
    AckType,
    Acquired,
    ReadBatch,
    RecordState,
    ShareSettings,
    StateBatch,
)
from kohort.errors import ErrorCode
from kohort.types import NamedTuple

REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."
"""Kafka's words in dead letters."""
_NO_LIMIT = 1 << 62
_BY_FIRST = attrgetter("first")
_BY_LAST = attrgetter("last")


class AcquireLimit(NamedTuple):
    """How much a fetch may acquire.

    ``is_strict``: no record more than ``max_records``. Otherwise the record batch that has the
    last of them is acquired whole, and ranges of ``batch_size`` offsets are separate.
    """

    max_records: int
    batch_size: int = _NO_LIMIT
    is_strict: bool = False


@dataclass(slots=True)
class Change:
    """New states of units, to write before they apply. ``letters`` are written after that."""

    moves: list[tuple[Unit, RecordState]] = field(default_factory=list)
    letters: list[tuple[Unit, str]] = field(default_factory=list)
    batches: list[StateBatch] = field(default_factory=list)
    complete: int = 0
    """Number of offsets in the window that are over after the change."""


class SharePartition:
    """The records of one partition that a group has in flight, see the module.

    ``start`` is the first offset of the window. ``batches`` are those of the stored state.
    """

    def __init__(self, start: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start: int = start
        self.end: int = start - 1
        self.complete: int = 0
        self.next_deadline: float = math.inf
        """A time before which no lock expires."""
        self._batches: list[InFlightBatch] = []
        self._has_available = bool(batches)
        """False if no record in the window is AVAILABLE."""
        for stored in batches:
            delivery = Delivery(RecordState(stored.state), stored.deliveries)
            self._batches.append(InFlightBatch(stored.first, stored.last, delivery))
            self.end = stored.last
            if delivery.state.is_terminal:
                self.complete += stored.last - stored.first + 1
        self._gap_from: int = start
        self._gap_end: int = self.end
        self._advance()

    @property
    def _has_gaps(self) -> bool:
        return self._gap_from <= self._gap_end

    # Fetching

    def next_fetch_offset(self) -> int:
        """Return the first offset to read: an available one, a gap, or the one after the window."""
        if self._has_available or self._has_gaps:
            position = self.start
            for batch in self._batches:
                if batch.last < self.start:
                    continue
                hole = max(position, self._gap_from)
                if self._has_gaps and hole < batch.first:
                    return hole
                for unit in batch.units(self.start):
                    if unit.delivery.state is RecordState.AVAILABLE:
                        return max(unit.first, self.start)
                position = batch.last + 1
            self._gap_from = self._gap_end + 1
            self._has_available = False
        return self.end + 1

    def has_room(self, max_locks: int) -> bool:
        """True if a fetch can acquire something."""
        return self.next_fetch_offset() <= self.end or self._in_flight < max_locks

    @property
    def _in_flight(self) -> int:
        return self.end - self.start + 1

    def acquire(
        self,
        member: str,
        read: Sequence[ReadBatch],
        limit: AcquireLimit,
        settings: ShareSettings,
        now: float,
    ) -> list[Acquired]:
        """Lock records for a member; ``read`` was read at ``next_fetch_offset()``."""
        if not read or limit.max_records <= 0:
            return []
        first, last = read[0].first, read[-1].last
        self._archive(self.next_fetch_offset(), first - 1)
        room = settings.max_locks - self._in_flight
        if room > 0:
            limit = limit._replace(max_records=min(limit.max_records, room))
        else:
            last = min(last, self.end)
        turn = _Acquisition(member, read, limit, settings, now + settings.lock_ms / 1000)
        self._acquire_between(turn, first, last)
        if turn.acquired:
            self.next_deadline = min(self.next_deadline, turn.deadline)
        passed = turn.acquired[-1].last if turn.acquired else last
        self._gap_from = max(self._gap_from, passed + 1)
        found = self._without_aborted(turn)
        self._advance()
        return found

    def _acquire_between(self, turn: _Acquisition, first: int, last: int) -> None:
        known = list(self._overlapping(first, last))
        position = first
        for batch in known:
            if self._has_gaps:
                self._acquire_new(turn, max(position, self._gap_from), batch.first - 1)
            if turn.is_over:
                return
            self._acquire_known(turn, batch, first, last)
            if turn.is_over:
                return
            position = batch.last + 1
        self._acquire_new(turn, position, last)

    def _acquire_new(self, turn: _Acquisition, first: int, last: int) -> None:
        """Acquire offsets that are not in flight, and keep the rest of a strict fetch available."""
        if not self._batches:
            first = max(first, self.end + 1)
        if first > last or turn.is_over:
            return
        wanted = min(last, first + turn.left - 1)
        cut = next((batch.last for batch in turn.read if batch.last >= wanted), last)
        cut = min(cut, last)
        ranges = [(first, cut)] if turn.limit.is_strict else list(turn.pieces(first, cut))
        for piece_first, piece_last in ranges:
            turn.break_range()
            batch = InFlightBatch(piece_first, piece_last, Delivery(RecordState.AVAILABLE, 0))
            insort(self._batches, batch, key=_BY_FIRST)
            self.end = max(self.end, piece_last)
            if turn.limit.is_strict and wanted < piece_last:
                batch.split()
                self._has_available = True
            for unit in batch.units(piece_first, wanted if turn.limit.is_strict else piece_last):
                turn.take(unit)

    def _acquire_known(
        self, turn: _Acquisition, batch: InFlightBatch, first: int, last: int
    ) -> None:
        """Acquire the available records of a batch in flight, fewer if they have failed often."""
        limit = turn.settings.delivery_limit
        available = [
            unit
            for unit in batch.units(first, last)
            if unit.delivery.state is RecordState.AVAILABLE
        ]
        if not available:
            return
        turn.break_range()
        highest = max(unit.delivery.count for unit in available)
        threshold = max(2, math.ceil(limit / 2))
        is_throttled = highest >= threshold
        is_whole = batch.whole is not None and first <= batch.first and batch.last <= last
        fits = not turn.limit.is_strict or len(batch) <= turn.left
        if is_whole and fits and not is_throttled:
            turn.take(available[0])
            return
        batch.split()
        count = turn.left if turn.limit.is_strict else _NO_LIMIT
        if is_throttled:
            count = min(count, max(1, len(batch) >> (highest - threshold + 1)))
        for unit in batch.units(first, last):
            delivery = unit.delivery
            if count <= 0:
                break
            if delivery.state is not RecordState.AVAILABLE:
                continue
            # Kafka delivers a record alone before it gives up on it.
            is_last_attempt = limit > 2 and delivery.count == limit - 1
            if is_last_attempt and turn.acquired:
                turn.is_over = True
                return
            turn.take(unit)
            count -= 1
            if is_last_attempt:
                break
        turn.is_over = turn.is_over or is_throttled

    def _without_aborted(self, turn: _Acquisition) -> list[Acquired]:
        """Archive acquired records of aborted transactions, and return the others."""
        found = turn.acquired
        for aborted in turn.read:
            if not aborted.is_aborted:
                continue
            kept: list[Acquired] = []
            for acquired in found:
                if acquired.last < aborted.first or acquired.first > aborted.last:
                    kept.append(acquired)
                    continue
                first = max(acquired.first, aborted.first)
                last = min(acquired.last, aborted.last)
                self._archive(first, last, RecordState.ACQUIRED)
                if acquired.first < first:
                    kept.append(acquired._replace(last=first - 1))
                if acquired.last > last:
                    kept.append(acquired._replace(first=last + 1))
            found = kept
        return found

    def _archive(self, first: int, last: int, state: RecordState = RecordState.AVAILABLE) -> None:
        """Archive the offsets of a range that have a state, without a write."""
        if first > last:
            return
        for batch in self._overlapping(first, last):
            whole = batch.whole
            if whole is not None and whole.state is not state:
                continue
            if not (first <= batch.first and batch.last <= last):
                batch.split()
            for unit in batch.units(first, last):
                if unit.delivery.state is state:
                    unit.delivery.set(RecordState.ARCHIVED)
                    self.complete += self._in_window(unit)

    # Acknowledgements

    def acknowledge(
        self, member: str, acks: Sequence[Ack], settings: ShareSettings, now: float
    ) -> Change:
        """Return the change of a member's acknowledgements; AckError for all if one is wrong.

        ``acks`` have passed ``check_acks()``.
        """
        moves: list[tuple[Unit, RecordState]] = []
        letters: list[tuple[Unit, str]] = []
        planned: set[Delivery] = set()
        for ack in acks:
            for unit in self._units_of(member, ack, planned):
                kind = ack.type_of(max(unit.first, ack.first))
                if kind == AckType.RENEW:
                    if not settings.renews:
                        raise AckError(
                            ErrorCode.INVALID_RECORD_STATE,
                            "Renewing acquisition locks is not enabled for the group.",
                        )
                    unit.delivery.deadline = now + settings.lock_ms / 1000
                    self.next_deadline = min(self.next_deadline, unit.delivery.deadline)
                    continue
                planned.add(unit.delivery)
                if kind == AckType.RELEASE:
                    self._plan_release(unit, settings, moves, letters)
                elif kind == AckType.REJECT and settings.has_letters:
                    moves.append((unit, RecordState.ARCHIVING))
                    letters.append((unit, REJECTED))
                else:
                    accepted = kind == AckType.ACCEPT
                    state = RecordState.ACKNOWLEDGED if accepted else RecordState.ARCHIVED
                    moves.append((unit, state))
        return self._change(moves, letters)

    def _units_of(self, member: str, ack: Ack, planned: set[Delivery]) -> Iterator[Unit]:
        """Yield the units of an acknowledgement, which the member must have acquired."""
        if ack.last < self.start:
            return
        first = max(ack.first, self.start)
        batches = list(self._overlapping(first, ack.last))
        is_before = not self._batches or ack.first < self._batches[0].first
        if is_before and ack.first >= self.start:
            raise AckError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        if not batches:
            raise _past("first")
        if ack.last > batches[-1].last:
            raise _past("last")
        for batch in batches:
            whole = batch.whole
            if whole is not None:
                _check_owner(whole, member, planned, "batch")
                covered = first <= batch.first and batch.last <= ack.last
                if covered and len(ack.types) == 1:
                    yield Unit(batch.first, batch.last, whole)
                    continue
                batch.split()
            for unit in batch.units(first, ack.last):
                _check_owner(unit.delivery, member, planned, "offset")
                yield unit

    def release(self, member: str, settings: ShareSettings) -> Change:
        """Return the change that releases all locks of a member."""
        moves: list[tuple[Unit, RecordState]] = []
        letters: list[tuple[Unit, str]] = []
        for batch in self._batches:
            for unit in batch.units():
                delivery = unit.delivery
                if delivery.state is RecordState.ACQUIRED and delivery.member == member:
                    self._plan_release(unit, settings, moves, letters)
        return self._change(moves, letters)

    def due(self, now: float) -> list[Unit]:
        """Return the units whose locks have expired, in the order of their deadlines."""
        if now < self.next_deadline:
            return []
        locked = [
            unit
            for batch in self._batches
            for unit in batch.units()
            if unit.delivery.state is RecordState.ACQUIRED
        ]
        left = [unit.delivery.deadline for unit in locked if unit.delivery.deadline > now]
        self.next_deadline = min(left, default=math.inf)
        expired = [unit for unit in locked if unit.delivery.deadline <= now]
        return sorted(expired, key=lambda unit: (unit.delivery.deadline, unit.first))

    def locked(self) -> list[Unit]:
        """Return all units that members have acquired."""
        return [
            unit
            for batch in self._batches
            for unit in batch.units()
            if unit.delivery.state is RecordState.ACQUIRED
        ]

    def expire(self, unit: Unit, settings: ShareSettings) -> Change:
        """Return the change that ends the lock of a unit, which must still have it."""
        moves: list[tuple[Unit, RecordState]] = []
        letters: list[tuple[Unit, str]] = []
        if unit.delivery.state is RecordState.ACQUIRED:
            self._plan_release(unit, settings, moves, letters)
        return self._change(moves, letters)

    def archiving(self) -> list[Unit]:
        """Return the units whose dead letters were not written before the state was loaded."""
        return [
            unit
            for batch in self._batches
            for unit in batch.units(self.start)
            if unit.delivery.state is RecordState.ARCHIVING
        ]

    def archive(self, units: Sequence[Unit]) -> Change:
        """Return the change that archives units whose dead letters were written or lost."""
        moves = [
            (unit, RecordState.ARCHIVED)
            for unit in units
            if unit.delivery.state is RecordState.ARCHIVING
        ]
        return self._change(moves, [])

    def _plan_release(
        self,
        unit: Unit,
        settings: ShareSettings,
        moves: list[tuple[Unit, RecordState]],
        letters: list[tuple[Unit, str]],
    ) -> None:
        if unit.last < self.start:
            moves.append((unit, RecordState.ARCHIVED))
        elif unit.delivery.count < settings.delivery_limit:
            moves.append((unit, RecordState.AVAILABLE))
        elif settings.has_letters:
            moves.append((unit, RecordState.ARCHIVING))
            letters.append((unit, EXHAUSTED))
        else:
            moves.append((unit, RecordState.ARCHIVED))

    def _change(
        self, moves: list[tuple[Unit, RecordState]], letters: list[tuple[Unit, str]]
    ) -> Change:
        batches = [
            unit.stored_as(state)._replace(first=max(unit.first, self.start))
            for unit, state in moves
            if unit.last >= self.start
        ]
        done = sum(self._in_window(unit) for unit, state in moves if state.is_terminal)
        return Change(moves, letters, joined(batches), self.complete + done)

    def apply(self, change: Change) -> None:
        """Apply a change that was written, and move the start over what is over."""
        for unit, state in change.moves:
            unit.delivery.set(state)
            if state is RecordState.AVAILABLE:
                self._has_available = True
            elif state.is_terminal:
                self.complete += self._in_window(unit)
        self._advance()

    # The window

    def on_log_start(self, offset: int) -> None:
        """Give up the records that the log has deleted below an offset, except locked ones."""
        if offset <= self.start:
            return
        self._archive(self.start, offset - 1)
        self.start = offset
        self.end = max(self.end, offset - 1)
        self._gap_from = max(self._gap_from, offset)
        self.complete = sum(
            self._in_window(unit)
            for batch in self._batches
            for unit in batch.units(offset)
            if unit.delivery.state.is_terminal
        )
        self._advance()

    def state_of(self, offset: int) -> Delivery | None:
        """Return the state of an offset in the window, None if it is not in flight."""
        for batch in self._overlapping(offset, offset):
            return next(batch.units(offset, offset)).delivery
        return None

    def units(self) -> Iterator[Unit]:
        """Yield the units in flight, in order of their offsets."""
        for batch in self._batches:
            yield from batch.units()

    def _overlapping(self, first: int, last: int) -> Iterator[InFlightBatch]:
        """Yield the batches in flight that have an offset of a range."""
        index = bisect_left(self._batches, first, key=_BY_LAST)
        while index < len(self._batches) and self._batches[index].first <= last:
            yield self._batches[index]
            index += 1

    def _in_window(self, unit: Unit) -> int:
        """Return the number of offsets of a unit that are not below the start."""
        return max(0, unit.last - max(unit.first, self.start) + 1)

    def _advance(self) -> None:
        """Move the start over the offsets that are over, and drop their batches."""
        passed = 0
        for batch in self._batches:
            if batch.last >= self.start:
                if batch.first > self.start:
                    if self._has_gaps and self._gap_from < batch.first:
                        break
                    self.start = batch.first
                for unit in batch.units(self.start):
                    if not unit.delivery.state.is_terminal:
                        break
                    self.complete -= self._in_window(unit)
                    self.start = unit.last + 1
                if batch.last >= self.start:
                    break
            passed += 1
        stale = self._batches[:passed]
        self._batches[:passed] = [
            batch
            for batch in stale
            if any(unit.delivery.state is RecordState.ACQUIRED for unit in batch.units())
        ]
        if not self._batches or self._batches[-1].last < self.start:
            self.start = max(self.start, self.end + 1)
        self._gap_from = max(self._gap_from, self.start)


@dataclass(slots=True)
class _Acquisition:
    """One call of ``acquire()``: what it may take, and what it has taken."""

    member: str
    read: Sequence[ReadBatch]
    limit: AcquireLimit
    settings: ShareSettings
    deadline: float
    acquired: list[Acquired] = field(default_factory=list)
    is_over: bool = False
    _joins: bool = False
    _taken: int = 0

    @property
    def left(self) -> int:
        """Records that it may still take."""
        return self.limit.max_records - self._taken

    def take(self, unit: Unit) -> None:
        """Lock a unit. Single offsets of one batch with one count become one range."""
        unit.delivery.lock(self.member, self.deadline)
        count, before = unit.delivery.count, self.acquired[-1] if self.acquired else None
        if (
            self._joins
            and before is not None
            and before.last + 1 == unit.first
            and before.deliveries == count
        ):
            self.acquired[-1] = before._replace(last=unit.last)
        else:
            self.acquired.append(Acquired(unit.first, unit.last, count))
        self._joins = unit.first == unit.last
        self._taken += unit.last - unit.first + 1
        self.is_over = self.left <= 0

    def break_range(self) -> None:
        """Let the next unit begin a range."""
        self._joins = False

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield a range in pieces that end with record batches, once they are large enough."""
        begin = first
        for batch in self.read:
            if batch.last < begin or batch.last >= last:
                continue
            if batch.last - begin + 1 >= self.limit.batch_size:
                yield begin, batch.last
                begin = batch.last + 1
        yield begin, last


def check_acks(acks: Sequence[Ack]) -> None:
    """Raise AckError unless acknowledgements are in order and have fitting, known types."""
    before = -1
    for ack in acks:
        fits = len(ack.types) in (1, ack.last - ack.first + 1)
        known = all(AckType.GAP <= kind <= AckType.RENEW for kind in ack.types)
        if ack.first > ack.last or ack.first < before or not fits or not known:
            raise AckError(ErrorCode.INVALID_REQUEST)
        before = ack.last


def _check_owner(delivery: Delivery, member: str, planned: set[Delivery], what: str) -> None:
    if delivery.state is not RecordState.ACQUIRED or delivery in planned:
        raise AckError(
            ErrorCode.INVALID_RECORD_STATE,
            f"The {what} cannot be acknowledged. The {what} is not "
            + ("in the acquired state." if what == "batch" else "acquired."),
        )
    if delivery.member != member:
        raise AckError(
            ErrorCode.INVALID_RECORD_STATE,
            "Member is not the owner of " + ("batch record" if what == "batch" else "offset"),
        )


def _past(which: str) -> AckError:
    return AckError(
        ErrorCode.INVALID_REQUEST,
        f"Batch record not found. The {which} offset in request is past acquired records.",
    )
