"""Acquired records of one partition and their acknowledgements, without I/O and clock.

Theory of operation. A leader locks records for this member until a deadline. It knows offsets
only, also those of markers and of compacted holes. So each acquired offset has a :class:`Hold`
until its last acknowledgement is answered, or until its lock is lost. A mark says what becomes of
an offset, and the latest mark counts until it is sent.

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
   marked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final

from kohort.errors import ErrorCode
from kohort.types import NamedTuple


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
    """The lock of one acquired offset. Records refer to it."""

    __slots__ = ("deadline", "delivery_count", "mark", "state")

    def __init__(self, deadline: float, delivery_count: int) -> None:
        self.deadline: float = deadline
        self.delivery_count: int = delivery_count
        self.mark: Acknowledgement | None = None
        self.state: HoldState = HoldState.HELD


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
    """The acknowledgements of one partition in one request."""

    offsets: tuple[tuple[int, Acknowledgement], ...]

    def ranges(self) -> list[AckRange]:
        """Return the offsets as ranges, for a request."""
        return list(_ranges(self.offsets))

    @property
    def has_renewals(self) -> bool:
        """True if the request needs the flag of renewals."""
        return any(each is Acknowledgement.RENEW for _, each in self.offsets)


EXPIRED: Final = 0
DISCONNECTED: Final = -2

_SPLITS: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Codes of a unit of which single offsets may be good."""


class AcquiredRecords:
    """The holds of one partition at its leader."""

    def __init__(self) -> None:
        self.holds: dict[int, Hold] = {}
        self._marked: dict[int, float] = {}
        """Marked offsets, with the time of the first mark."""
        self._halves: list[tuple[int, ...]] = []
        """Offsets of refused units, to send again on their own."""
        self._overtaken: list[Failure] = []
        """Marks of holds that newer ones have replaced."""
        self._in_flight: AckUnit | None = None
        self._sent_at = 0.0

    def __len__(self) -> int:
        return len(self.holds)

    @property
    def is_in_flight(self) -> bool:
        """True while an answer is expected."""
        return self._in_flight is not None

    @property
    def is_idle(self) -> bool:
        """True if nothing is held, marked or in flight."""
        return not self.holds and self._in_flight is None

    def acquire(self, offset: int, deadline: float, delivery_count: int) -> Hold:
        """Hold an acquired offset."""
        self.overtake(offset)
        hold = self.holds[offset] = Hold(deadline, delivery_count)
        return hold

    def overtake(self, offset: int) -> None:
        """Lose the hold of an offset that its leader has locked again, because its lock ended."""
        before = self.holds.get(offset)
        if before is not None:
            if before.mark not in (None, Acknowledgement.GAP):
                self._overtaken.append(Failure(offset, EXPIRED))
            self.lose(offset, before)

    def take_overtaken(self) -> list[Failure]:
        """Return the marks that :meth:`overtake` has made void since the last call."""
        found, self._overtaken = self._overtaken, []
        return found

    def mark(self, offset: int, hold: Hold, type: Acknowledgement, now: float) -> None:
        """Mark a held offset. A later mark replaces one that is not sent yet."""
        assert hold.state is HoldState.HELD
        hold.mark = type
        self._marked.setdefault(offset, now)

    def lose(self, offset: int, hold: Hold) -> None:
        """Lose one hold, whose lock is gone."""
        hold.state = HoldState.LOST
        if self.holds.get(offset) is hold:
            del self.holds[offset]
            self._marked.pop(offset, None)

    @property
    def oldest_mark(self) -> float | None:
        """The time of the oldest mark that is not sent, or None."""
        if self._halves:
            return 0.0
        return next(iter(self._marked.values()), None)

    @property
    def has_renewals(self) -> bool:
        """True if the next unit has a renewal."""
        following = self._halves[0] if self._halves else self._marked
        holds = map(self.holds.get, following)  # those of a half may be lost
        return any(hold is not None and hold.mark is Acknowledgement.RENEW for hold in holds)

    def take(self, now: float, *, with_renewals: bool = True) -> tuple[AckUnit, list[Failure]]:
        """Begin to send what is marked, and return it with the marks whose locks have expired."""
        assert self._in_flight is None
        failures: list[Failure] = []
        if self._halves:
            chosen: Collection[int] = self._halves.pop(0)
            for offset in chosen:  # a mark since then goes with it
                self._marked.pop(offset, None)
        else:
            chosen, self._marked = sorted(self._marked), {}
        offsets = []
        for offset in chosen:
            hold = self.holds.get(offset)
            if hold is None or hold.mark is None:
                continue
            if now >= hold.deadline:
                if hold.mark is not Acknowledgement.GAP:
                    failures.append(Failure(offset, EXPIRED))
                self.lose(offset, hold)
                continue
            if hold.mark is Acknowledgement.RENEW and not with_renewals:
                hold.mark = None
                failures.append(Failure(offset, ErrorCode.UNSUPPORTED_VERSION))
                continue
            if hold.mark is not Acknowledgement.RENEW:
                hold.state = HoldState.SENT
            offsets.append((offset, hold.mark))
        unit = AckUnit(tuple(offsets))
        self._in_flight, self._sent_at = unit if offsets else None, now
        return unit, failures

    def answered(self, code: int, message: str | None, lock_seconds: float) -> list[Failure]:
        """Note the answer to the unit in flight, and return the offsets that failed for good."""
        unit, self._in_flight = self._in_flight, None
        if unit is None:
            return []
        if code == 0:
            for offset, type in unit.offsets:
                self._settle(offset, type, self._sent_at + lock_seconds)
            return []
        if code in _SPLITS and len(unit.offsets) > 1:
            offsets = tuple(offset for offset, _ in unit.offsets)
            middle = len(offsets) // 2
            self._halves += [offsets[:middle], offsets[middle:]]
            for offset in offsets:
                if (hold := self.holds.get(offset)) is not None:
                    hold.state = HoldState.HELD
            return []
        return self._fail(unit, code, message)

    def _settle(self, offset: int, type: Acknowledgement, renewed: float) -> None:
        hold = self.holds.get(offset)
        if hold is None:
            return
        if type is Acknowledgement.RENEW:
            hold.deadline = renewed
            if hold.mark is Acknowledgement.RENEW:
                hold.mark = None
            return
        hold.state = HoldState.DONE
        del self.holds[offset]

    def _fail(self, unit: AckUnit, code: int, message: str | None) -> list[Failure]:
        failures = []
        for offset, type in unit.offsets:
            hold = self.holds.get(offset)
            if hold is None:
                continue
            if type is not Acknowledgement.GAP:
                failures.append(Failure(offset, code, message))
            if type is Acknowledgement.RENEW:  # its lock runs on
                if hold.mark is Acknowledgement.RENEW:
                    hold.mark = None
                continue
            self.lose(offset, hold)
        return failures

    def void(self, code: int, message: str | None = None) -> list[Failure]:
        """Lose every hold, because the leader has forgotten the locks. Return what was marked."""
        self._in_flight = None
        self._halves.clear()
        failures = [
            Failure(offset, code, message)
            for offset, hold in self.holds.items()
            if hold.mark is not None and hold.mark is not Acknowledgement.GAP
        ]
        for hold in self.holds.values():
            hold.state = HoldState.LOST
        self.holds.clear()
        self._marked.clear()
        return failures


def _ranges(offsets: Iterable[tuple[int, Acknowledgement]]) -> Iterator[AckRange]:
    """Yield runs of neighbouring offsets with the same type."""
    run: AckRange | None = None
    for offset, type in offsets:
        if run is not None and offset == run.last + 1 and type is run.type:
            run = run._replace(last=offset)
            continue
        if run is not None:
            yield run
        run = AckRange(offset, offset, type)
    if run is not None:
        yield run
