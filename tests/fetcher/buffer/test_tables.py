"""Draining into tables: no row is lost or repeated, even if a table fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.errors import CorruptBatchError
from kohort.fetcher import TableTarget
from kohort.records import RecordColumns, TablePlan, to_columns
from kohort.types import TopicPartition
from tests.fetcher.bench import Bench
from tests.fetcher.making import T0, T1, T2, CountedLease, batch, broken

Runs = list[tuple[TopicPartition, list[int]]]


def drain(
    bench: Bench,
    max_rows: int = 1000,
    max_bytes: int = 1 << 20,
    meanwhile: Callable[[], object] = lambda: None,
) -> Runs:
    """Return the offsets of one drain. ``meanwhile`` runs between measuring and delivering."""

    def build(plan: TablePlan) -> list[RecordColumns]:
        columns = to_columns(plan)
        meanwhile()
        return columns

    how = TableTarget(TablePlan(max_rows, max_bytes), build)
    bench.buffer.drain_table(how)
    tables: list[RecordColumns] = how.table or []
    return [(TopicPartition(each.topic, each.partition), list(each.offset)) for each in tables]


def test_rows_of_all_partitions_come_at_once_and_move_positions() -> None:
    bench = Bench(T0, T1)
    lease = CountedLease()
    bench.put(T0, 0, batch(0, 5), lease=lease)
    bench.put(T0, 5, batch(5, 2))
    bench.put(T1, 0, batch(0, 3))
    assert drain(bench) == [(T0, [0, 1, 2, 3, 4, 5, 6]), (T1, [0, 1, 2])]
    assert (bench.position(T0), bench.position(T1)) == (7, 3)
    assert drain(bench) == []
    assert lease.released == 1


@pytest.mark.parametrize("mix", [False, True])
def test_a_cut_in_the_middle_of_a_batch_goes_on_there(mix: bool) -> None:
    bench = Bench(T0, T1)
    bench.put(T0, 0, batch(0, 5), batch(5, 5))
    bench.put(T1, 0, batch(0, 3))
    assert drain(bench, 3) == [(T0, [0, 1, 2])]
    assert bench.position(T0) == 3
    assert drain(bench, 4) == [(T1, [0, 1, 2]), (T0, [3])]
    if mix:
        assert bench.drain(2) == {T0: [4, 5]}
        assert drain(bench) == []  # records were decoded ahead, so the bytes are fetched again
        [target] = [each for each in bench.subscription.fetch_targets() if each[0] == T0]
        assert target.offset == 6
        bench.put(T0, 6, batch(5, 5))
        assert drain(bench) == [(T0, [6, 7, 8, 9])]
    else:
        assert drain(bench) == [(T0, [4, 5, 6, 7, 8, 9])]


def test_bytes_cut_and_every_drain_gets_further() -> None:
    bench = Bench(T0, T1)
    bench.put(T0, 0, *(batch(n * 5, 5) for n in range(4)))
    bench.put(T1, 0, batch(0, 5))
    seen: list[int] = []
    for _ in range(5):
        [(tp, offsets)] = drain(bench, max_bytes=50)
        seen += offsets if tp == T0 else []
    assert seen == list(range(20))
    assert drain(bench) == []


@pytest.mark.parametrize("how", ["revoked", "lost", "paused", "sought", "pending"])
def test_table_is_discarded_if_a_partition_goes_before_delivery(how: str) -> None:
    bench = Bench(T0, T1)
    bench.put(T0, 0, batch(0, 5))
    bench.put(T1, 0, batch(0, 3))

    def go() -> None:
        subscription = bench.subscription
        if how in ("revoked", "lost"):
            subscription.revoke([T0])
        elif how == "pending":
            subscription.mark_pending_revocation([T0])
        elif how == "paused":
            subscription.pause([T0])
        else:
            subscription.seek(T0, 2)

    assert drain(bench, meanwhile=go) == []
    assert bench.position(T1) == 0, "nothing of it was delivered"
    assert bench.rooms, "the fetcher gets a signal"
    [target] = [each for each in bench.subscription.fetch_targets() if each[0] == T1]
    assert target.offset == 0
    bench.put(T1, 0, batch(0, 3))
    if how == "paused":
        assert bench.position(T0) == 0
        bench.subscription.resume([T0])
        bench.put(T0, 0, batch(0, 5))
        assert sorted(drain(bench)) == [(T0, [0, 1, 2, 3, 4]), (T1, [0, 1, 2])]
    elif how == "sought":
        assert bench.position(T0) == 2
        bench.put(T0, 2, batch(0, 5))
        assert sorted(drain(bench)) == [(T0, [2, 3, 4]), (T1, [0, 1, 2])]
    else:
        assert drain(bench) == [(T1, [0, 1, 2])]


def test_rows_put_back_return_before_the_error_after_them() -> None:
    bench = Bench(T0, T1)
    bad = batch(0, 2) + broken(batch(2, 2))
    bench.put(T0, 0, bad)
    bench.put(T1, 0, batch(0, 3))
    assert drain(bench, meanwhile=lambda: bench.subscription.pause([T1])) == []
    bench.put(T0, 0, bad)
    assert drain(bench) == [(T0, [0, 1])]
    with pytest.raises(CorruptBatchError) as raised:
        drain(bench)
    assert (raised.value.offset, raised.value.next_offset) == (2, 4)


def test_corrupt_batch_raises_after_its_rows_and_spares_others() -> None:
    bench = Bench(T0, T1, T2)
    bench.put(T0, 0, batch(0, 2), broken(batch(2, 2)), batch(4, 2))
    bench.put(T1, 0, batch(0, 1))
    assert drain(bench) == [(T0, [0, 1]), (T1, [0])]
    assert bench.position(T0) == 2
    with pytest.raises(CorruptBatchError):
        drain(bench)
    bench.put(T2, 0, batch(0, 1))
    assert drain(bench) == [(T2, [0])]
    with pytest.raises(CorruptBatchError):
        drain(bench)
    bench.subscription.seek(T0, 4)
    bench.put(T0, 4, batch(4, 2))
    assert drain(bench) == [(T0, [4, 5])]


def test_an_interrupt_while_the_table_is_made_loses_nothing() -> None:
    bench = Bench(T0)
    bench.put(T0, 0, batch(0, 5))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain(bench, meanwhile=interrupt)
    assert bench.position(T0) == 0
    assert drain(bench) == []
    bench.put(T0, 0, batch(0, 5))
    assert drain(bench) == [(T0, [0, 1, 2, 3, 4])]
