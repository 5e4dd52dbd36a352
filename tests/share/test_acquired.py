"""Acquired records and their acknowledgements: what is sent, when, and what fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.share.machine._acquired import (
    DISCONNECTED,
    EXPIRED,
    Acknowledgement,
    AckRange,
    AcquiredRecords,
    Failure,
    Hold,
    HoldState,
)
from kohort.types import TopicPartition

ACCEPT, RELEASE, REJECT = (
    Acknowledgement.ACCEPT,
    Acknowledgement.RELEASE,
    Acknowledgement.REJECT,
)
RENEW, GAP = Acknowledgement.RENEW, Acknowledgement.GAP
LOCK = 30.0


def acquired() -> AcquiredRecords:
    """Return a partition without records."""
    return AcquiredRecords(None, TopicPartition("jobs", 0), 1)


def held(*offsets: int, deadline: float = LOCK) -> AcquiredRecords:
    """Return a partition with these offsets acquired."""
    records = acquired()
    for offset in offsets:
        records.acquire(offset, offset, deadline, 1)
    return records


def mark(records: AcquiredRecords, offset: int, type: Acknowledgement, now: float = 0.0) -> None:
    assert records.holds[offset].state_of(offset) is HoldState.HELD
    records.mark({offset: type}, now)


def test_neighbours_of_one_type_go_as_a_range() -> None:
    records = held(*range(8))
    for offset, type in ((5, ACCEPT), (0, ACCEPT), (1, ACCEPT), (3, RELEASE), (4, RELEASE)):
        mark(records, offset, type)
    unit, failures = records.take(1.0)
    assert list(unit.ranges) == [
        AckRange(0, 1, ACCEPT),
        AckRange(3, 4, RELEASE),
        AckRange(5, 5, ACCEPT),
    ]
    assert failures == []
    assert records.answered(0, None, LOCK) == []
    assert sorted(records.holds) == [2, 6, 7]


def test_the_latest_mark_counts_until_it_is_sent() -> None:
    records = held(0)
    mark(records, 0, ACCEPT)
    mark(records, 0, REJECT)
    hold = records.holds[0]
    states = []
    assert list(records.take(1.0)[0].ranges) == [AckRange(0, 0, REJECT)]
    states.append(hold.state_of(0))
    records.answered(0, None, LOCK)
    assert [*states, hold.state_of(0)] == [HoldState.SENT, HoldState.DONE]


def test_an_expired_lock_is_named_and_never_sent() -> None:
    records = held(0, 1)
    records.holds[1].renewed[1] = 2 * LOCK
    mark(records, 0, ACCEPT)
    mark(records, 1, ACCEPT)
    unit, failures = records.take(LOCK)
    assert list(unit.offsets()) == [(1, ACCEPT)]
    assert failures == [Failure(0, EXPIRED)]
    assert sorted(records.holds) == [1]


def test_a_refused_list_is_halved_until_the_bad_offset_stands_alone() -> None:
    records = held(*range(16))
    for offset in range(16):
        mark(records, offset, ACCEPT)
    sent, failed = [], []
    while records.oldest_mark is not None:
        unit, _ = records.take(1.0)
        offsets = [offset for offset, _ in unit.offsets()]
        is_bad = 11 in offsets
        sent += [] if is_bad else offsets
        code = ErrorCode.INVALID_RECORD_STATE if is_bad else 0
        failed += records.answered(code, "not acquired", LOCK)
    assert sorted(sent) == [offset for offset in range(16) if offset != 11]
    assert failed == [Failure(11, ErrorCode.INVALID_RECORD_STATE, "not acquired")]
    assert records.is_idle


def test_a_new_mark_on_a_refused_offset_is_sent_once() -> None:
    records = held(0, 1)
    mark(records, 0, RENEW)
    mark(records, 1, RENEW)
    records.take(1.0)
    records.answered(ErrorCode.INVALID_RECORD_STATE, None, LOCK)
    mark(records, 0, ACCEPT)
    assert list(records.take(2.0)[0].offsets()) == [(0, ACCEPT)]
    records.answered(0, None, LOCK)
    assert list(records.take(3.0)[0].offsets()) == [(1, RENEW)]
    records.answered(0, None, LOCK)
    assert records.oldest_mark is None


def test_a_renewal_moves_the_deadline_from_its_sending() -> None:
    records = held(0)
    mark(records, 0, RENEW)
    unit, _ = records.take(10.0)
    assert unit.has_renewals
    records.answered(0, None, LOCK)
    assert records.holds[0].deadline_of(0) == 10.0 + LOCK
    mark(records, 0, ACCEPT)
    assert list(records.take(LOCK + 1)[0].offsets()) == [(0, ACCEPT)]


def test_an_accept_beside_a_renewal_in_flight_is_sent_after_it() -> None:
    records = held(0)
    mark(records, 0, RENEW)
    records.take(1.0)
    mark(records, 0, ACCEPT)
    records.answered(0, None, LOCK)
    assert list(records.take(2.0)[0].offsets()) == [(0, ACCEPT)]


def test_a_refused_renewal_keeps_the_lock() -> None:
    records = held(0)
    mark(records, 0, RENEW)
    records.take(1.0)
    code = ErrorCode.INVALID_RECORD_STATE
    assert records.answered(code, None, LOCK) == [Failure(0, code)]
    mark(records, 0, RELEASE)
    assert list(records.take(2.0)[0].offsets()) == [(0, RELEASE)]


def test_renewals_are_refused_here_where_brokers_do_not_know_them() -> None:
    records = held(0, 1)
    mark(records, 0, RENEW)
    mark(records, 1, ACCEPT)
    unit, failures = records.take(1.0, with_renewals=False)
    assert list(unit.offsets()) == [(1, ACCEPT)]
    assert failures == [Failure(0, ErrorCode.UNSUPPORTED_VERSION)]


def test_a_lost_leader_loses_all_and_names_what_was_marked() -> None:
    records = held(0, 1, 2, 3)
    mark(records, 0, ACCEPT)
    records.take(1.0)
    mark(records, 1, RELEASE)
    mark(records, 2, GAP)
    holds = dict(records.holds)
    assert records.void(DISCONNECTED) == [Failure(0, DISCONNECTED)]  # 1 is released with its lock
    assert {hold.state_of(offset) for offset, hold in holds.items()} == {HoldState.LOST}
    assert records.is_idle and records.oldest_mark is None
    assert records.answered(0, None, LOCK) == []  # a late answer means nothing


@pytest.mark.parametrize("type", [ACCEPT, RELEASE])
def test_an_offset_that_is_acquired_again_loses_its_older_hold(type: Acknowledgement) -> None:
    records = held(0)
    before = records.holds[0]
    mark(records, 0, type)
    after = records.acquire(0, 0, 2 * LOCK, 2)
    assert before.state_of(0) is HoldState.LOST
    assert records.oldest_mark is None
    assert records.holds[0] is after
    assert records.take_overtaken() == ([Failure(0, EXPIRED)] if type is ACCEPT else [])
    assert records.take_overtaken() == []


def test_a_release_in_flight_whose_lock_is_lost_is_no_failure() -> None:
    records = held(0, 1)
    mark(records, 0, RELEASE)
    mark(records, 1, REJECT)
    records.take(1.0)
    assert records.void(DISCONNECTED) == [Failure(1, DISCONNECTED)]


def whole() -> tuple[AcquiredRecords, Hold]:
    """Return a partition with one range, which is accepted as such."""
    records = acquired()
    hold = records.acquire(5, 8, LOCK, 1)
    assert records.mark_whole(hold, ACCEPT, 1.0)
    assert records.oldest_mark == 1.0
    assert not records.mark_whole(hold, ACCEPT, 1.0)
    return records, hold


def test_a_whole_range_is_accepted_in_one_step() -> None:
    records, hold = whole()
    assert list(records.take(2.0)[0].ranges) == [AckRange(5, 8, ACCEPT)]
    assert records.oldest_mark is None
    assert len(records) == 4
    assert records.answered(0, None, LOCK) == []
    assert records.is_idle
    assert hold.state_of(6) is HoldState.DONE


@pytest.mark.parametrize("type", [ACCEPT, RENEW])
def test_equal_marks_of_a_range_are_sent_as_one(type: Acknowledgement) -> None:
    records = acquired()
    hold = records.acquire(5, 8, LOCK, 1)
    for offset in (6, 5, 8, 7):
        assert records.mark_held(offset, hold, type, 1.0)
    assert records.oldest_mark == 1.0
    assert list(records.take(2.0)[0].ranges) == [AckRange(5, 8, type)]
    assert records.mark_held(5, hold, ACCEPT, 2.0) is (type is RENEW)
    records.answered(0, None, LOCK)
    assert len(records) == (4 if type is RENEW else 0)
    assert hold.deadline_of(5) == (2.0 + LOCK if type is RENEW else LOCK)


def test_other_marks_of_a_range_are_sent_as_they_are() -> None:
    records = acquired()
    hold = records.acquire(5, 8, LOCK, 1)
    for offset in (5, 6):
        assert records.mark_held(offset, hold, ACCEPT, 1.0)
    assert list(records.take(2.0)[0].ranges) == [AckRange(5, 6, ACCEPT)]
    assert not records.mark_held(5, hold, REJECT, 2.0)
    assert records.mark_held(7, hold, REJECT, 2.0)
    records.answered(0, None, LOCK)
    assert list(records.take(3.0)[0].ranges) == [AckRange(7, 7, REJECT)]
    assert not records.mark_held(8, hold, ACCEPT, LOCK)


def opened(*types: Acknowledgement) -> tuple[AcquiredRecords, Hold]:
    """Return a partition with one open range, whose offsets from 5 on have these marks."""
    records = acquired()
    hold = records.acquire(5, 8, LOCK, 1)
    for offset, type in enumerate(types, start=5):
        assert records.mark_held(offset, hold, type, 1.0)
    assert hold.open is not None
    return records, hold


class ClosedAfterRead(Hold):
    """A hold that another thread closes after each read of its marks."""

    __slots__ = ()

    @property
    def open(self) -> bytearray | None:
        found: bytearray | None = _open.__get__(self)
        _open.__set__(self, None)
        return found

    @open.setter
    def open(self, marks: bytearray | None) -> None:
        _open.__set__(self, marks)


_open: Any = vars(Hold)["open"]


@pytest.mark.parametrize(
    "use",
    [
        lambda records, hold: records.take(2.0),
        lambda records, hold: records.mark_of(5),
        lambda records, hold: records.unmarked_locks(),
        lambda records, hold: records.mark_held(6, hold, ACCEPT, 2.0),
    ],
    ids=["take", "mark_of", "unmarked_locks", "mark_held"],
)
def test_a_range_may_be_closed_after_it_was_read(use: Callable[..., object]) -> None:
    records, hold = opened(ACCEPT)
    hold.__class__ = ClosedAfterRead
    use(records, hold)


def test_the_bytes_of_an_open_range_are_marks_until_it_is_sent() -> None:
    records, hold = opened(ACCEPT)
    assert hold.open is not None
    hold.open[2], hold.open[3] = REJECT, ACCEPT  # as mark_open() does
    assert records.oldest_mark == 1.0
    assert records.unmarked_locks() == (1, LOCK)
    assert list(records.unmarked()) == [6]
    assert [records.mark_of(offset) for offset in range(4, 9)] == [
        None,
        ACCEPT,
        None,
        REJECT,
        ACCEPT,
    ]
    unit, failures = records.take(2.0)
    assert (records.holds[6].open, failures) == (None, [])
    assert list(unit.ranges) == [
        AckRange(5, 5, ACCEPT),
        AckRange(7, 7, REJECT),
        AckRange(8, 8, ACCEPT),
    ]
    assert not records.mark_held(7, hold, ACCEPT, 2.0)
    assert records.mark_held(6, hold, ACCEPT, 2.0)
    assert hold.open is None


def test_an_open_range_is_not_marked_as_a_whole() -> None:
    records, hold = opened(RELEASE)
    assert not records.is_untouched
    assert not records.mark_whole(hold, ACCEPT, 1.0)
    assert list(records.take(2.0)[0].ranges) == [AckRange(5, 5, RELEASE)]


def test_late_marks_of_an_open_range_are_named_unless_they_release() -> None:
    records, _ = opened(ACCEPT, RELEASE, REJECT)
    unit, failures = records.take(LOCK)
    assert unit.ranges == ()
    assert failures == [Failure(5, EXPIRED), Failure(7, EXPIRED)]
    assert sorted(records.holds) == [8]


@pytest.mark.parametrize("how", ["renewal", "void", "range beside", "overtaken"])
def test_an_open_range_is_closed_before_its_offsets_differ(how: str) -> None:
    records, hold = opened(ACCEPT, ACCEPT)
    if how == "renewal":
        assert records.mark_held(8, hold, RENEW, 1.0)
        sent = [AckRange(5, 6, ACCEPT), AckRange(8, 8, RENEW)]
    elif how == "void":
        assert records.void(DISCONNECTED) == [Failure(5, DISCONNECTED), Failure(6, DISCONNECTED)]
        sent = []
    elif how == "range beside":
        records.acquire(9, 9, LOCK, 1)
        sent = [AckRange(5, 6, ACCEPT)]
    else:
        records.acquire(6, 8, LOCK, 2)
        assert records.take_overtaken() == [Failure(6, EXPIRED)]
        sent = [AckRange(5, 5, ACCEPT)]
    assert hold.open is None
    assert list(records.take(2.0)[0].ranges) == sent


def test_a_look_at_an_offset_changes_nothing_of_its_range() -> None:
    for late in (False, True):
        records, hold = whole()
        if late:
            records.take(2.0)
        assert hold.state_of(6) is (HoldState.SENT if late else HoldState.HELD)
        if not late:
            assert list(records.take(2.0)[0].ranges) == [AckRange(5, 8, ACCEPT)]
        assert records.answered(0, None, LOCK) == []
        assert records.is_idle


def test_a_refused_whole_range_is_halved() -> None:
    records, _ = whole()
    records.take(2.0)
    code = ErrorCode.INVALID_RECORD_STATE
    assert records.answered(code, None, LOCK) == []
    assert list(records.take(3.0)[0].ranges) == [AckRange(5, 6, ACCEPT)]
    records.answered(0, None, LOCK)
    assert sorted(records.holds) == [7, 8]
    assert list(records.take(4.0)[0].ranges) == [AckRange(7, 8, ACCEPT)]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_lost_leader_names_a_whole_range(is_sent: bool) -> None:
    records, hold = whole()
    if is_sent:
        records.take(2.0)
    failures = records.void(DISCONNECTED)
    assert failures == [Failure(offset, DISCONNECTED) for offset in range(5, 9)]
    assert hold.lost == dict.fromkeys(range(5, 9), ACCEPT)
    assert records.is_idle


def test_an_expired_whole_range_is_named() -> None:
    records, _ = whole()
    unit, failures = records.take(LOCK)
    assert unit.ranges == ()
    assert failures == [Failure(offset, EXPIRED) for offset in range(5, 9)]


def test_a_range_beside_a_whole_one_leaves_both() -> None:
    records, _ = whole()
    records.acquire(9, 9, LOCK, 1)
    mark(records, 9, REJECT)
    assert list(records.take(2.0)[0].ranges) == [AckRange(5, 8, ACCEPT), AckRange(9, 9, REJECT)]


@pytest.mark.parametrize("seed", range(20))
def test_random_lives_keep_the_invariants(seed: int) -> None:
    rng = random.Random(seed)
    records, now, lock = acquired(), 0.0, 5.0
    next_offset, terminal = 0, dict[int, int]()
    holds: list[Hold] = []
    failed: list[int] = []
    """Marked offsets that were named when their locks were lost."""
    released = set[int]()
    """Offsets whose locks expired before their release was sent."""
    in_flight: list[tuple[int, Acknowledgement]] = []
    for _ in range(400):
        now += rng.random()
        match rng.randrange(5):
            case 0:
                if count := rng.randrange(5):
                    hold = records.acquire(next_offset, next_offset + count - 1, now + lock, 1)
                    holds.append(hold)
                    next_offset += count
                    if rng.random() < 0.5:
                        records.mark_whole(hold, ACCEPT, now)
            case 1 | 2:
                free = [o for o, h in records.holds.items() if h.state_of(o) is HoldState.HELD]
                if free:
                    mark(records, rng.choice(free), Acknowledgement(rng.randrange(5)), now)
            case 3 if not records.is_in_flight:
                held = dict(records.holds)
                unit, failures = records.take(now)
                assert {each.code for each in failures} <= {EXPIRED}
                released |= {o for o, hold in held.items() if hold.lost.get(o) is RELEASE}
                failed += [each.offset for each in failures]
                in_flight = list(unit.offsets())
                offsets = [offset for offset, _ in in_flight]
                assert offsets == sorted(set(offsets))
                assert all(now < records.holds[offset].deadline_of(offset) for offset in offsets)
            case 4 if records.is_in_flight:
                code = rng.choice([0, 0, int(ErrorCode.INVALID_RECORD_STATE)])
                if code == 0:
                    for offset, type in in_flight:
                        if type is not RENEW:
                            terminal[offset] = terminal.get(offset, 0) + 1
                failures = records.answered(code, None, lock)
                assert {each.code for each in failures} <= {code} - {0}
                failed += [o for o, *_ in failures if o not in records.holds]
    lost = {offset: mark for hold in holds for offset, mark in hold.lost.items()}
    assert set(terminal.values()) <= {1}
    assert terminal and failed
    unnamed = released.union(offset for offset, mark in lost.items() if mark is GAP)
    assert sorted(failed) == sorted(lost.keys() - unnamed)
    assert sorted([*terminal, *lost, *records.holds]) == list(range(next_offset))
