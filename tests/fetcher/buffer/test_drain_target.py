"""Targets of a drain, records or a table. Both are freed with the last reference."""

from __future__ import annotations

import gc
import weakref

import pytest

from kohort.fetcher import TableTarget
from kohort.records import Table, TablePlan
from tests.fetcher.bench import Bench
from tests.fetcher.making import T0, T1, batch
from tests.support.undisturbed import undisturbed


class Built:
    """A table with support for weak references."""

    def __init__(self, plan: TablePlan) -> None:
        self.table: Table = plan.build()


@pytest.fixture
def bench() -> Bench:
    bench = Bench(T0, T1)
    for tp in (T0, T1):
        bench.put(tp, 0, batch(0, 5), batch(5, 5))
    return bench


def test_table_has_rows_of_all_partitions_and_moves_positions(bench: Bench) -> None:
    how = TableTarget(TablePlan(), Built)
    bench.buffer.drain_table(how)
    assert how.table is not None
    table = how.table.table
    assert table.buffers["offset"].cast("B").cast("q").tolist() == [*range(10), *range(10)]
    assert (bench.position(T0), bench.position(T1)) == (10, 10)


def test_a_table_that_did_not_arrive_is_fetched_again(bench: Bench) -> None:
    how = TableTarget(TablePlan(max_rows=7), Built)
    bench.buffer.drain_table(how)
    assert bench.position(T0) == 7
    bench.buffer.undo(how)
    assert bench.position(T0) == 0
    assert bench.drain(100) == {T1: list(range(10))}, "the buffered records of T0 are outdated"
    bench.put(T0, 0, batch(0, 5))
    assert bench.drain(100) == {T0: list(range(5))}


def test_table_starts_after_drained_records_once_fetched_again(
    bench: Bench,
) -> None:
    assert bench.drain(2) == {T0: [0, 1]}
    how = TableTarget(TablePlan(), Built)
    bench.buffer.drain_table(how)
    assert how.plan.rows == 10, "rows of T1"
    [target] = [each for each in bench.subscription.fetch_targets() if each.topic_partition == T0]
    assert target.offset == 2


def test_drained_data_is_freed_without_the_garbage_collector(bench: Bench) -> None:
    def unreachable() -> int:
        gc.collect()
        how = TableTarget(TablePlan(max_rows=4), Built)
        bench.buffer.drain_table(how)
        gone = weakref.ref(how.table)
        del how
        assert gone() is None
        bench.buffer.drain(3)
        return gc.collect()

    gc.disable()
    try:
        with undisturbed():
            assert unreachable() == 0
    finally:
        gc.enable()
