"""Columns that other libraries take as Arrow and release at any time, in any thread."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kohort.records import (
    Compression,
    NewRecord,
    RecordColumns,
    RecordSet,
    RecordTable,
    TablePlan,
    arrow_schema,
    encode_batch,
    to_arrow,
    to_columns,
)
from kohort.records.tables import _capsule
from kohort.records.tables._table_decoder_choice import capsules
from tests.support.decoders import REQUIRED
from tests.support.undisturbed import least

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")


@pytest.fixture
def decoder() -> None:
    """Only the decoder in use, because both do the same here."""


@pytest.fixture(params=["own", "pyarrow"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The maker of the capsules."""
    if request.param == "pyarrow":
        monkeypatch.setattr(_capsule, "capsules", None)
    elif capsules is None and not REQUIRED:
        pytest.skip("kohort is installed without its compiled modules")
    return str(request.param)


def plan(size: int = 10, name: str = "ü") -> TablePlan:
    """Return rows of three partitions, from offsets 0, 3 and 6. "??" becomes invalid UTF-8."""
    records = [
        NewRecord(
            n - 1,
            None if n % 3 == 0 else b"k%d" % n,
            None if n % 4 == 1 else b"v%d" % n * size,
            [(f"{name}{n}", None if n % 5 == 2 else b"h")] * (n % 3),
        )
        for n in range(20)
    ]
    data = encode_batch(records, compression=Compression.LZ4)
    plain = encode_batch(records, base_offset=20).replace(b"??", b"\xff\xfe")
    made = TablePlan()
    for partition in range(3):
        found = RecordSet(
            data + plain, partition * 3, topic="orders", partition=partition, check_crcs=False
        )
        found.add_rows_to(made)
    return made


def columns() -> RecordColumns:
    return to_columns(plan())[1]


@pytest.mark.parametrize("name", ["h", "ü", "??"])
def test_pyarrow_takes_what_poll_arrow_gives(name: str) -> None:
    made = to_columns(plan(name=name))
    expected = to_arrow(plan(name=name))
    start = 0
    for each in made:
        taken = pa.record_batch(each)
        taken.validate(full=True)
        assert taken.schema == pa.schema(each) == arrow_schema()
        assert taken == expected.slice(start, len(each))
        table = pa.table(each)
        table.validate(full=True)
        assert table.to_batches() == [taken]
        start += len(each)
    assert start == expected.num_rows


def test_polars_takes_them_as_they_are() -> None:
    one = columns()
    frame = pl.DataFrame(one)
    assert frame["offset"].to_list() == list(one.offset)
    assert frame["value"].to_list() == list(one.value)
    assert frame["timestamp"].null_count() == list(one.timestamp).count(-1)
    both = pl.concat(map(pl.DataFrame, to_columns(plan())))
    assert both["partition"].to_list() == to_arrow(plan()).column("partition").to_pylist()


def test_duckdb_takes_them_as_they_are() -> None:
    one = columns()
    relation = duckdb.from_arrow(one)
    found = relation.aggregate('count(*), max("offset"), count(key)').fetchall()
    assert found == [(len(one), one.offset[-1], sum(key is not None for key in one.key))]


def test_pandas_takes_them_as_they_are() -> None:
    one = columns()
    take = getattr(pd.DataFrame, "from_arrow", None) or (lambda each: pa.table(each).to_pandas())
    frame = take(one)
    assert list(frame["offset"]) == list(one.offset)
    assert frame["key"].isna().sum() == sum(key is None for key in one.key)


def test_a_table_is_one_pyarrow_table_without_a_copy() -> None:
    polls = [to_columns(plan()), to_columns(plan(size=20))]
    table = pa.table(RecordTable([*polls[0], *polls[1]]))
    table.validate(full=True)
    assert table == pa.Table.from_batches([to_arrow(plan()), to_arrow(plan(size=20))])
    assert table.column("value").num_chunks == 2  # one for each poll
    addresses = {chunk.buffers()[2].address for chunk in table.column("value").chunks}
    both = [pa.record_batch(poll[0]).column("value").buffers()[2].address for poll in polls]
    assert addresses == set(both)


def test_a_table_takes_columns_in_any_order() -> None:
    first, second, third = to_columns(plan())
    table = pa.table(RecordTable([third, first, second, second]))
    table.validate(full=True)
    order = third, first, second, second
    assert table.to_pylist() == [row for each in order for row in pa.record_batch(each).to_pylist()]


def test_a_table_without_columns_has_the_schema() -> None:
    empty = pa.table(RecordTable([]))
    assert (empty.num_rows, empty.schema) == (0, arrow_schema())
    assert pa.schema(RecordTable([])) == arrow_schema()
    assert pl.DataFrame(RecordTable([])).columns == arrow_schema().names
    assert duckdb.from_arrow(RecordTable([])).columns == arrow_schema().names


def test_polars_duckdb_and_pandas_take_a_table() -> None:
    parts = [*to_columns(plan()), *to_columns(plan())]
    rows = RecordTable(parts)
    offsets = [offset for each in parts for offset in each.offset]
    assert pl.DataFrame(rows)["offset"].to_list() == offsets
    for _ in "ab":  # each use begins with the first batch
        found = duckdb.from_arrow(rows).aggregate('count(*), sum("offset")').fetchall()
        assert found == [(len(offsets), sum(offsets))]
    assert duckdb.sql('select max("offset") from rows').fetchall() == [(max(offsets),)]
    take = getattr(pd.DataFrame, "from_arrow", None) or (lambda each: pa.table(each).to_pandas())
    assert list(take(rows)["offset"]) == offsets


def test_what_was_taken_outlives_the_columns() -> None:
    one = columns()
    expected = list(one.value)
    column = pa.record_batch(one).column("value")
    stream = one.__arrow_c_stream__()
    del one
    gc.collect()
    fill = [bytearray(10_000) for _ in range(100)]  # overwrites memory that was freed too early
    assert column.to_pylist() == expected
    del column
    taken = pa.RecordBatchReader._import_from_c_capsule(stream)
    assert taken.read_all().column("value").to_pylist() == expected
    assert fill


def _kept(use: Callable[[Any], object], size: int) -> int:
    """Return how many times ``size`` bytes are still held after this use of columns."""
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(2):
        made = to_columns(plan(size))
        for each in made:
            use(each)
        del made, each
    gc.collect()  # slow under tracemalloc, so the use before this one collects, too
    return (tracemalloc.get_traced_memory()[0] - before) // size


@pytest.mark.long  # a garbage collection under tracemalloc takes tenths of a second
def test_all_that_is_given_back_is_let_go_of(way: str) -> None:
    size = 2_000

    def drop(taken: Any) -> None:
        del taken

    def fail(taken: Any, name: str = "nothing") -> None:
        with pytest.raises(TypeError, match="no number"):
            raise TypeError("no number", pa.record_batch(taken).column("value"))
        with pytest.raises(AttributeError):
            getattr(taken.__arrow_c_stream__(), name)  # released while the error propagates
        with pytest.raises(AttributeError):
            getattr(pa.record_batch(taken), name)

    def elsewhere(taken: Any) -> None:
        batches = [pa.record_batch(taken)]
        thread = threading.Thread(target=batches.clear)
        thread.start()
        thread.join()

    uses = [
        drop,
        fail,
        elsewhere,
        lambda taken: taken.__arrow_c_array__(),
        lambda taken: taken.__arrow_c_stream__(),
        lambda taken: taken.__arrow_c_schema__(),
        pa.record_batch,
        pa.table,
        pl.DataFrame,
        lambda taken: pa.RecordBatchReader.from_stream(taken),
        lambda taken: RecordTable([taken, taken]).__arrow_c_stream__(),
        lambda taken: pa.table(RecordTable([taken, taken])),
        lambda taken: next(pa.RecordBatchReader.from_stream(RecordTable([taken, taken]))),
    ]
    tracemalloc.start()
    try:
        for use in uses:
            kept = partial(_kept, use, size)
            assert least(kept, 50) < 50, use  # a plan is more than a hundred of these
    finally:
        tracemalloc.stop()


def test_many_structures_leave_nothing_behind(way: str) -> None:
    one = columns()
    for _ in range(500):
        one.__arrow_c_array__()
        pa.record_batch(one)
    assert pa.record_batch(one).num_rows == len(one)


def test_without_either_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    one = columns()
    if way == "own":
        monkeypatch.setattr(_capsule, "find_spec", lambda name: None)
        assert one.__arrow_c_array__()
        return
    monkeypatch.setattr(_capsule, "find_spec", lambda name: None)
    table = RecordTable([one])
    for method in (
        one.__arrow_c_schema__,
        one.__arrow_c_array__,
        one.__arrow_c_stream__,
        table.__arrow_c_schema__,
        table.__arrow_c_stream__,
    ):
        with pytest.raises(ImportError, match=r"kohort\[arrow\]"):
            method()
