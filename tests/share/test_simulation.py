"""Random lives of a share group: none violates an invariant, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from kohort.broker.share import _partition
from kohort.broker.share._coordinator import ShareCoordinator
from kohort.broker.share._leader import ShareLeader
from kohort.broker.share._partition import Change, SharePartition
from kohort.broker.share._values import RecordState
from kohort.errors import ErrorCode
from kohort.share._delivery import ShareDelivery
from kohort.share.client._locks import Fetched, Locks
from kohort.share.machine._acquired import (
    Acknowledgement,
    AckRange,
    AcquiredRecords,
    Hold,
)
from kohort.share.machine._session import ShareSession
from tests.share.simulation import run, simulate

SEEDS = range(6)
"""Seeds of a plain run. ``python -m tests.share.simulation --seeds 1000`` has others."""
TRIES = 100
"""Seeds in which each planted bug is found."""


@pytest.mark.timeout(600)
def test_no_seed_violates_anything() -> None:
    found = {seed: violations for seed in SEEDS if (violations := simulate(seed))}
    assert found == {}


def test_a_seed_is_always_the_same() -> None:
    assert run(1).figures == run(1).figures


def send_late_accepts() -> AbstractContextManager[Any]:
    """Believe that locks last for ever."""
    add = Locks.add

    def eternal(locks: Locks, fetched: Fetched) -> None:
        fetched.deadline += 1e6  # type: ignore[misc]
        add(locks, fetched)

    return patch.object(Locks, "add", eternal)


def count_no_errors() -> AbstractContextManager[Any]:
    """Expect the same epoch after a response with an error."""
    answered = ShareSession.answered

    def only_good(session: ShareSession, code: int) -> bool:
        epoch = session.epoch
        good = answered(session, code)
        if good and code:
            session.epoch = epoch
        return good

    return patch.object(ShareSession, "answered", only_good)


def forget_markers() -> AbstractContextManager[Any]:
    """Acknowledge no offset without a record."""
    hold = Locks.hold

    def bare(locks: Locks, fetched: Fetched, gaps: Collection[int]) -> dict[int, Hold]:
        found = hold(locks, fetched, set())
        return {offset: each for offset, each in found.items() if offset not in gaps}

    return patch.object(Locks, "hold", bare)


def keep_acknowledged_partitions() -> AbstractContextManager[Any]:
    """Let a leader feed partitions that a fetch named only for their acknowledgements."""
    fetch = ShareSession.fetch

    def without_forgetting(session: ShareSession, wanted: Any, acknowledged: Any) -> Any:
        return fetch(session, wanted, acknowledged)._replace(forgotten=frozenset())

    return patch.object(ShareSession, "fetch", without_forgetting)


def accept_renewed_records_twice() -> AbstractContextManager[Any]:
    settle = AcquiredRecords._settle

    def again(records: AcquiredRecords, acknowledged: AckRange, until: float) -> None:
        offsets = range(acknowledged.first, acknowledged.last + 1)
        renewed = {o: h for o in offsets if (h := records.holds.get(o)) and o in h.renewed}
        settle(records, acknowledged, until)
        if acknowledged.type is not Acknowledgement.RENEW:
            for offset, hold in renewed.items():
                del hold.renewed[offset]
                records.holds[offset] = hold
                records.mark({offset: acknowledged.type}, 0.0)

    return patch.object(AcquiredRecords, "_settle", again)


def move_the_start_before_the_write() -> AbstractContextManager[Any]:
    commit = ShareLeader._commit

    def early(leader: ShareLeader, key: Any, led: Any, change: Change) -> ErrorCode:
        led.machine.apply(change)
        with patch.object(led.machine, "apply", lambda change: None):
            return commit(leader, key, led, change)

    return patch.object(ShareLeader, "_commit", early)


def lose_the_count_on_release() -> AbstractContextManager[Any]:
    apply = SharePartition.apply

    def without_counts(machine: SharePartition, change: Change) -> None:
        for unit, state in change.moves:
            if state is RecordState.AVAILABLE:
                unit.delivery.count = 0
        apply(machine, change)

    return patch.object(SharePartition, "apply", without_counts)


def close_with_locks() -> AbstractContextManager[Any]:
    return patch.object(ShareLeader, "_release", lambda leader, key, member: None)


def believe_every_answer() -> AbstractContextManager[Any]:
    """Take refused acknowledgements for accepted ones."""
    answered = AcquiredRecords.answered

    def accepted(records: AcquiredRecords, code: int, message: Any, seconds: float) -> Any:
        return answered(records, 0, None, seconds)

    return patch.object(AcquiredRecords, "answered", accepted)


def hide_overtaken_marks() -> AbstractContextManager[Any]:
    """Report no mark that came too late because its record was acquired again."""
    return patch.object(AcquiredRecords, "take_overtaken", lambda records: [])


def hand_out_twice() -> AbstractContextManager[Any]:
    deliver = ShareDelivery.deliver

    def doubled(delivery: ShareDelivery, fetched: Iterable[Fetched]) -> Any:
        return {tp: [*found, found[-1]] for tp, found in deliver(delivery, fetched).items()}

    return patch.object(ShareDelivery, "deliver", doubled)


def acknowledge_for_others() -> AbstractContextManager[Any]:
    return patch.object(_partition, "_check_owner", lambda *owner: None)


def write_letters_twice() -> AbstractContextManager[Any]:
    write = ShareLeader._write_letters

    def doubled(leader: ShareLeader) -> None:
        leader._letters += leader._letters
        write(leader)

    return patch.object(ShareLeader, "_write_letters", doubled)


def store_no_batches() -> AbstractContextManager[Any]:
    append = ShareCoordinator._append_update

    def bare(coordinator: ShareCoordinator, key: Any, state: Any, batches: Sequence[Any]) -> None:
        append(coordinator, key, state, [])

    return patch.object(ShareCoordinator, "_append_update", bare)


BUGS = (
    send_late_accepts,
    count_no_errors,
    forget_markers,
    keep_acknowledged_partitions,
    accept_renewed_records_twice,
    move_the_start_before_the_write,
    lose_the_count_on_release,
    close_with_locks,
    believe_every_answer,
    hide_overtaken_marks,
    hand_out_twice,
    acknowledge_for_others,
    write_letters_twice,
    store_no_batches,
)


@pytest.mark.long  # each simulates until it is found
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Callable[[], AbstractContextManager[Any]]) -> None:
    with plant():
        found = next(filter(simulate, range(TRIES)), None)
    assert found is not None
    assert simulate(found) == []
