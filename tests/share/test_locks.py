"""The locks of a share consumer over all leaders, and the buffer of its fetches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from typing import Any

import pytest

from kohort import ConsumerRecord, ShareRecord
from kohort.errors import (
    ErrorCode,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
)
from kohort.records import COMPILED, mark_open
from kohort.share._record import hold_of, share_all
from kohort.share.client._locks import SEND_SHARE, Fetched, Locks
from kohort.share.machine._acquired import (
    DISCONNECTED,
    Acknowledgement,
    AckRange,
    AcquiredRange,
    AcquiredRecords,
    Hold,
)
from kohort.types import TopicPartition

TP, OTHER = TopicPartition("jobs", 0), TopicPartition("jobs", 1)
KEY, OTHER_KEY = (b"i" * 16, 0), (b"i" * 16, 1)
NODE, SECOND = 1, 2
ACCEPT, RELEASE = Acknowledgement.ACCEPT, Acknowledgement.RELEASE
LOCK = 30.0


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def fetched(first: int, last: int, *, now: float = 0.0, node: int = NODE) -> Fetched:
    ranges = (AcquiredRange(first, last, 1),)
    return Fetched(KEY, TP, node, ranges, memoryview(b""), now, now + LOCK)


def taken(locks: Locks, first: int, last: int) -> dict[int, Hold]:
    """Return the holds of a fetch that a poll has taken."""
    locks.add(fetched(first, last, now=locks.clock()))
    (found,) = locks.take()
    return locks.hold(found, set())


def test_a_fetch_that_waits_for_half_of_its_lock_is_released_unseen() -> None:
    clock = Clock()
    locks = Locks(clock)
    locks.add(fetched(0, 4))
    clock.now = LOCK / 2 - 0.1
    locks.release_stale(clock.now)
    assert locks.has_buffered
    clock.now = LOCK / 2
    assert locks.take() == []
    units = locks.take_units(NODE)
    assert [tuple(each) for each in units[KEY].ranges] == [(0, 4, RELEASE)]
    locks.answered(NODE, KEY, 0, None)
    assert locks.counts() == (0, 0)
    assert locks.take_failures() == {}


def test_a_fetch_that_waited_too_long_is_released_at_once() -> None:
    clock = Clock()
    locks = Locks(clock)
    holds = taken(locks, 0, 0)
    locks.add(fetched(1, 4))
    clock.now = LOCK / 2
    assert locks.mark(0, holds[0], ACCEPT)
    due = clock.now - LOCK * SEND_SHARE
    assert not locks.has_marks(NODE, older_than=due)
    locks.release_stale(clock.now)
    assert locks.has_marks(NODE, older_than=due)  # a third of the lock later it may have ended
    assert list(locks.take_units(NODE)[KEY].ranges) == [
        AckRange(0, 0, ACCEPT),
        AckRange(1, 4, RELEASE),
    ]


@pytest.mark.parametrize("how", ["one", "rest", "whole"])
def test_a_late_mark_is_due_before_its_lock_ends(how: str) -> None:
    clock = Clock()

    def is_due(locks: Locks) -> bool:
        return locks.has_marks(NODE, older_than=clock.now - LOCK * SEND_SHARE)

    for share in (0.6, 0.7):
        clock.now = 0.0
        locks = Locks(clock)
        locks.add(fetched(0, 0))
        (found,) = locks.take()
        hold = locks.hold_whole(found)
        assert hold is not None
        clock.now = share * LOCK
        match how:
            case "one":
                assert locks.mark(0, hold, ACCEPT)
            case "rest":
                locks.mark_rest({0: hold}, ACCEPT)
            case "whole":
                assert locks.mark_whole(hold, ACCEPT)
        assert is_due(locks) is locks.has_urgent is (share > 2 / 3)
        clock.now = 0.7 * LOCK  # before the last look of this lock
        assert is_due(locks)


def test_the_pace_of_the_caller_is_that_of_its_last_poll() -> None:
    clock = Clock()
    locks = Locks(clock)
    assert locks.finished_in(1.0) == 0
    holds = taken(locks, 0, 9)
    clock.now = 0.8
    for offset in range(9):
        locks.mark(offset, holds[offset], ACCEPT)
    assert locks.finished_in(1.0) == 0
    locks.mark(9, holds[9], Acknowledgement.RENEW)
    assert locks.finished_in(1.0) == 0
    locks.mark(9, holds[9], ACCEPT)
    assert locks.finished_in(1.0) == 12
    assert locks.finished_in(10.0) == 20
    locks.take()
    assert locks.finished_in(1.0) == 0


def test_a_caller_that_has_lost_its_locks_has_no_pace() -> None:
    locks = Locks(Clock())
    taken(locks, 0, 9)
    locks.void(NODE, DISCONNECTED)
    assert locks.finished_in(1.0) == 0


def test_gaps_are_acknowledged_and_not_held_for_the_caller() -> None:
    clock = Clock()
    locks = Locks(clock)
    locks.add(fetched(0, 4))
    clock.now = 0.4 * LOCK
    (found,) = locks.take()
    assert sorted(locks.hold(found, {1, 4})) == [0, 2, 3]
    assert locks.has_marks(NODE, older_than=clock.now - LOCK * SEND_SHARE)
    ranges = locks.take_units(NODE)[KEY].ranges
    assert [tuple(each) for each in ranges] == [(1, 1, 0), (4, 4, 0)]


def test_a_late_accept_is_named_and_does_not_spoil_the_others() -> None:
    clock = Clock()
    locks = Locks(clock)
    holds = taken(locks, 0, 2)
    found = locks.find(TP, 1)
    assert found is holds[1]
    found.records.holds[1].renewed[1] = 10.0  # a renewal keeps a hold for each offset
    for offset, hold in holds.items():
        assert locks.mark(offset, hold, ACCEPT)
    clock.now = 10.0
    assert list(locks.take_units(NODE)[KEY].offsets()) == [(0, ACCEPT), (2, ACCEPT)]
    locks.answered(NODE, KEY, 0, None)
    failures = locks.take_failures()
    assert list(failures[TP]) == [1]
    assert isinstance(failures[TP][1], KafkaTimeoutError)
    assert locks.take_failures() == {}


def test_an_accept_after_the_deadline_is_a_failure_once() -> None:
    clock = Clock()
    locks = Locks(clock)
    holds = taken(locks, 0, 0)
    clock.now = LOCK
    assert locks.mark(0, holds[0], ACCEPT)
    assert locks.mark(0, holds[0], ACCEPT)
    assert locks.failed == 1
    assert isinstance(locks.take_failures()[TP][0], KafkaTimeoutError)
    assert locks.take_units(NODE) == {}


def test_an_acknowledgement_that_was_sent_is_final() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 0)
    assert locks.mark(0, holds[0], ACCEPT)
    locks.take_units(NODE)
    assert not locks.mark(0, holds[0], RELEASE)
    locks.answered(NODE, KEY, 0, None)
    assert not locks.mark(0, holds[0], RELEASE)


def test_a_lost_session_loses_what_its_leader_locked_and_nothing_else() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 1)
    ranges = (AcquiredRange(7, 7, 1),)
    locks.add(Fetched(OTHER_KEY, OTHER, SECOND, ranges, memoryview(b""), 0.0, LOCK))
    locks.add(fetched(2, 3))
    locks.mark(0, holds[0], ACCEPT)
    locks.void(NODE, DISCONNECTED)
    assert [each.key for each in locks.take()] == [OTHER_KEY]
    assert locks.mark(1, holds[1], ACCEPT)
    failures = locks.take_failures()[TP]
    assert sorted(failures) == [0, 1]
    assert {type(each) for each in failures.values()} == {KafkaConnectionError}


def test_a_fetch_whose_locks_end_before_it_is_decoded_has_no_records() -> None:
    locks = Locks(Clock())
    locks.add(fetched(0, 3))
    (found,) = locks.take()
    locks.void(NODE, DISCONNECTED)
    assert locks.hold(found, set()) == {}


def test_a_fetch_counts_for_its_leader_while_it_is_decoded() -> None:
    locks = Locks(Clock())
    locks.add(fetched(0, 3))
    (found,) = locks.take()
    assert locks.nodes() == {NODE}
    holds = locks.hold(found, set())
    locks.mark_rest(holds, ACCEPT)
    locks.take_units(NODE)
    locks.answered(NODE, KEY, 0, None)
    assert locks.nodes() == set()
    locks.add(fetched(4, 5))
    locks.take()
    locks.void(NODE, DISCONNECTED)
    assert locks.nodes() == set()


def test_a_moved_leader_fails_the_acknowledgements_of_its_partition() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 1)
    locks.mark(0, holds[0], ACCEPT)
    locks.take_units(NODE)
    locks.answered(NODE, KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert isinstance(locks.take_failures()[TP][0], NotLeaderOrFollowerError)
    assert locks.counts() == (0, 0)


def test_an_answer_that_the_leader_has_moved_ends_its_fetches_too() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 0)
    locks.mark(0, holds[0], ACCEPT)
    locks.take_units(NODE)
    locks.add(fetched(1, 2))
    (decoded,) = locks.take()
    locks.add(fetched(3, 4))
    locks.answered(NODE, KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert not locks.has_buffered
    assert locks.hold(decoded, set()) == {}
    assert list(locks.take_failures()[TP]) == [0]


def test_records_of_a_new_leader_replace_those_of_the_old_one() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 1)
    locks.add(fetched(0, 1, node=SECOND))
    (found,) = locks.take()
    again = locks.hold(found, set())
    assert locks.mark(0, holds[0], ACCEPT)
    assert locks.mark(0, again[0], ACCEPT)
    assert locks.take_units(NODE) == {}
    assert list(locks.take_units(SECOND)[KEY].offsets()) == [(0, ACCEPT)]
    assert list(locks.take_failures()[TP]) == [0]


def test_buffered_records_of_an_old_leader_are_dropped() -> None:
    for is_old_first in (True, False):
        locks = Locks(Clock())
        answers = [fetched(0, 3), fetched(0, 1, now=1.0, node=SECOND)]
        for answer in answers if is_old_first else reversed(answers):
            locks.add(answer)
        (found,) = locks.take()
        assert found is answers[1]
        for offset, hold in locks.hold(found, set()).items():
            assert locks.mark(offset, hold, ACCEPT)
        assert locks.take_units(NODE) == {}
        assert [*locks.take_units(SECOND)[KEY].ranges] == [AckRange(0, 1, ACCEPT)]


def test_records_that_are_decoded_end_with_their_leader() -> None:
    locks = Locks(Clock())
    locks.add(fetched(0, 3))
    (found,) = locks.take()
    locks.add(fetched(0, 1, now=1.0, node=SECOND))
    assert locks.hold(found, set()) == {}


def test_a_late_fetch_of_an_old_leader_leaves_newer_locks() -> None:
    locks = Locks(Clock())
    locks.add(fetched(0, 1, now=1.0, node=SECOND))
    (found,) = locks.take()
    holds = locks.hold(found, set())
    locks.add(fetched(0, 3))
    assert not locks.has_buffered
    locks.void_partition(NODE, KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert locks.mark(0, holds[0], ACCEPT)
    assert [*locks.take_units(SECOND)[KEY].ranges] == [AckRange(0, 0, ACCEPT)]


@pytest.mark.parametrize("code", [0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_late_answer_of_an_old_leader_settles_nothing(code: int) -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 0)
    locks.mark(0, holds[0], ACCEPT)
    assert locks.take_units(NODE)
    locks.add(fetched(0, 1, now=1.0, node=SECOND))
    (found,) = locks.take()
    again = locks.hold(found, set())
    locks.mark(0, again[0], ACCEPT)
    assert locks.take_units(SECOND)
    locks.answered(NODE, KEY, code, None)
    assert not locks.is_settled
    assert locks.mark(1, again[1], ACCEPT)
    locks.answered(SECOND, KEY, 0, None)
    assert locks.counts() == (1, 0)
    assert list(locks.take_failures()[TP]) == [0]  # as the old leader may not have noted it


def test_a_look_at_whole_ranges_spreads_none() -> None:
    locks = Locks(Clock())
    locks.add(fetched(0, 10**6))
    locks.add(fetched(10**6 + 1, 2 * 10**6, now=1.0))
    (found, _) = locks.take()
    hold = locks.hold_whole(found)
    assert hold is not None
    for marked in range(2):
        assert locks.unmarked() == (10**6 + 1 - marked, LOCK)
        assert locks.find(TP, 10**6) is hold
        assert locks.find(TP, 10**6 + 1) is None
        assert locks.counts() == (10**6 + 1, 0)
        assert locks.mark(marked, hold, ACCEPT)
    assert not hold.records._holds


@pytest.mark.parametrize("type", [ACCEPT, RELEASE])
def test_a_refused_mark_is_not_sent_for_the_next_lock_of_its_record(type: Acknowledgement) -> None:
    locks = Locks(Clock())
    for offset, hold in taken(locks, 0, 1).items():
        locks.mark(offset, hold, type)
    locks.take_units(NODE)
    # One response refuses both, because the locks have ended, and acquires both again.
    locks.answered(NODE, KEY, ErrorCode.INVALID_RECORD_STATE, None)
    locks.add(fetched(0, 1))
    assert locks.take_units(NODE) == {}
    (found,) = locks.take()
    assert sorted(locks.hold(found, set())) == [0, 1]
    assert locks.take_units(NODE) == {}
    assert sorted(locks.take_failures().get(TP, ())) == ([0, 1] if type is ACCEPT else [])


def test_accept_fails_after_a_renewal_of_the_lost_lock_failed() -> None:
    locks = Locks(Clock())
    hold = taken(locks, 0, 0)[0]
    locks.void(NODE, DISCONNECTED)
    for type in (Acknowledgement.RENEW, ACCEPT):
        assert locks.mark(0, hold, type)
        assert list(locks.take_failures()[TP]) == [0]
    assert locks.mark(0, hold, ACCEPT)
    assert locks.take_failures() == {}


def test_a_refused_mark_is_not_replaced_by_that_of_the_rest() -> None:
    locks = Locks(Clock())
    holds = taken(locks, 0, 3)
    for offset, hold in holds.items():
        locks.mark(offset, hold, RELEASE)
    locks.take_units(NODE)
    locks.answered(NODE, KEY, ErrorCode.INVALID_RECORD_STATE, None)
    locks.mark_rest(holds, ACCEPT)
    assert locks.unmarked() == (0, None)
    sent: list[AckRange] = []
    for _ in range(2):  # each half alone
        sent += locks.take_units(NODE)[KEY].ranges
        locks.answered(NODE, KEY, 0, None)
    assert [tuple(each) for each in sent] == [(0, 1, RELEASE), (2, 3, RELEASE)]


def test_a_refused_accept_whose_lock_ends_is_named_although_a_release_follows() -> None:
    clock = Clock()
    locks = Locks(clock)
    holds = taken(locks, 0, 1)
    for offset, hold in holds.items():
        locks.mark(offset, hold, ACCEPT)
    locks.take_units(NODE)
    locks.answered(NODE, KEY, ErrorCode.INVALID_RECORD_STATE, None)
    clock.now = LOCK
    locks.mark(0, holds[0], RELEASE)
    assert locks.take_units(NODE) == {}
    assert sorted(locks.take_failures()[TP]) == [0]


def test_a_late_mark_of_the_rest_is_named_unless_it_is_a_release() -> None:
    clock = Clock()
    locks = Locks(clock)
    holds = taken(locks, 0, 1)
    clock.now = LOCK
    locks.mark_rest({0: holds[0]}, RELEASE)
    locks.mark_rest({1: holds[1]}, ACCEPT)
    assert locks.take_units(NODE) == {}
    assert sorted(locks.take_failures()[TP]) == [1]


def test_an_expired_lock_that_no_caller_marked_is_no_failure() -> None:
    clock = Clock()
    locks = Locks(clock)
    taken(locks, 0, 1)
    locks.add(fetched(2, 3))  # waits for a poll
    clock.now = LOCK
    locks.release_buffered()
    locks.release_rest(NODE, frozenset())
    assert locks.take_units(NODE) == {}
    assert locks.take_failures() == {}
    assert locks.failed == 0


def test_a_record_of_another_consumer_is_not_marked() -> None:
    locks, other = Locks(Clock()), Locks(Clock())
    hold = taken(other, 0, 0)[0]
    taken(locks, 0, 0)
    assert not locks.mark(0, hold, ACCEPT)
    assert locks.take_units(NODE) == other.take_units(NODE) == {}


def records_of(locks: Locks, first: int, last: int) -> list[ShareRecord[Any, Any]]:
    """Return the records of a fetch that a poll has taken, one for each offset."""
    locks.add(fetched(first, last, now=locks.clock()))
    (found,) = locks.take()
    hold = locks.hold_whole(found)
    assert hold is not None
    records = [ConsumerRecord("jobs", 0, offset=offset) for offset in range(first, last + 1)]
    return share_all(records, hold)


def marks(locks: Locks, records: list[ShareRecord[Any, Any]]) -> bool:
    """Mark records without the lock, or say that this is not possible."""
    return mark_open(tuple(records), locks, ACCEPT)


def test_records_are_marked_without_the_lock_after_the_first_one() -> None:
    locks = Locks(Clock())
    first, *others = records_of(locks, 3, 7)
    assert not marks(locks, [first])
    assert locks.mark(first.offset, hold_of(first), ACCEPT)
    assert marks(locks, others) is COMPILED  # plain Python has the lock for each
    for record in [] if COMPILED else others:
        assert locks.mark(record.offset, hold_of(record), ACCEPT)
    assert not marks(Locks(Clock()), others)
    assert [*locks.take_units(NODE)[KEY].ranges] == [AckRange(3, 7, ACCEPT)]
    assert not marks(locks, others)
    locks.answered(NODE, KEY, 0, None)
    assert locks.counts() == (0, 0)
    assert locks.take_failures() == {}


def test_records_of_which_one_is_not_open_are_all_marked_with_the_lock() -> None:
    locks = Locks(Clock())
    first, *others = records_of(locks, 3, 7)
    assert locks.mark(first.offset, hold_of(first), ACCEPT)
    last = records_of(Locks(Clock()), 8, 8)
    assert not marks(locks, others + last)
    assert [*locks.take_units(NODE)[KEY].ranges] == [AckRange(3, 3, ACCEPT)]
    for record in others:  # not sent yet
        assert locks.mark(record.offset, hold_of(record), ACCEPT)


def test_a_mark_during_the_release_of_the_rest_counts_or_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = Locks(Clock())
    first, second, *_ = records_of(locks, 3, 7)
    assert locks.mark(first.offset, hold_of(first), ACCEPT)
    read, marked = AcquiredRecords.unmarked, []

    def unmarked(records: AcquiredRecords) -> Collection[int]:
        found = read(records)
        marked.append(marks(locks, [second]))  # as another thread does
        return found

    monkeypatch.setattr(AcquiredRecords, "unmarked", unmarked)
    locks.release_rest(NODE, frozenset())
    assert marked == [False]
    assert [*locks.take_units(NODE)[KEY].ranges] == [
        AckRange(3, 3, ACCEPT),
        AckRange(4, 7, RELEASE),
    ]


@pytest.mark.skipif(not COMPILED, reason="plain Python marks nothing without the lock")
def test_a_range_stays_closed_while_its_marks_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = Locks(Clock())
    first, second, *_ = records_of(locks, 3, 7)
    assert locks.mark(first.offset, hold_of(first), ACCEPT)
    spread, marked = AcquiredRecords._spread, []

    def spread_late(records: AcquiredRecords, *args: Any) -> None:
        marked.append(marks(locks, [second]))  # as another thread does
        spread(records, *args)

    monkeypatch.setattr(AcquiredRecords, "_spread", spread_late)
    assert [*locks.take_units(NODE)[KEY].ranges] == [AckRange(3, 3, ACCEPT)]
    assert marked == [False]


@pytest.mark.skipif(not COMPILED, reason="plain Python marks nothing without the lock")
@pytest.mark.parametrize("how", ["void", "closed", "forked", "replaced"])
def test_records_are_not_marked_without_the_lock_after_its_end(how: str) -> None:
    locks = Locks(Clock())
    first, *others = records_of(locks, 3, 7)
    assert locks.mark(first.offset, hold_of(first), ACCEPT)
    assert marks(locks, others[:1])
    if how == "void":
        locks.void(NODE, DISCONNECTED)
        assert sorted(locks.take_failures()[TP]) == [3, 4]
    elif how == "closed":
        locks.close_ranges()
    elif how == "forked":
        read, write = os.pipe()
        with warnings.catch_warnings():  # This process has threads. The child only exits.
            warnings.simplefilter("ignore")
            child = os.fork()
        if not child:
            os.write(write, b"marked" if marks(locks, others) else b"refused")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 10) == b"refused"
        os.close(read)
        os.close(write)
        assert marks(locks, others)
        return
    else:
        locks.add(fetched(4, 4, now=1.0))
    assert not marks(locks, others)
