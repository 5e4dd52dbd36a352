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
    TablePlan,
    _capsule,
    arrow_schema,
    encode_batch,
    to_arrow,
    to_columns,
)
from kohort.records._table_decoder import capsules
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
    assert frame["offset"].to_list() == list(one.offsets)
    assert frame["value"].to_list() == [None if v is None else bytes(v) for v in one.values]
    assert frame["timestamp"].null_count() == list(one.timestamps).count(-1)
    both = pl.concat(map(pl.DataFrame, to_columns(plan())))
    assert both["partition"].to_list() == to_arrow(plan()).column("partition").to_pylist()


def test_duckdb_takes_them_as_they_are() -> None:
    one = columns()
    relation = duckdb.from_arrow(one)
    found = relation.aggregate('count(*), max("offset"), count(key)').fetchall()
    assert found == [(len(one), one.offsets[-1], sum(key is not None for key in one.keys))]


def test_pandas_takes_them_as_they_are() -> None:
    one = columns()
    take = getattr(pd.DataFrame, "from_arrow", None) or (lambda each: pa.table(each).to_pandas())
    frame = take(one)
    assert list(frame["offset"]) == list(one.offsets)
    assert frame["key"].isna().sum() == sum(key is None for key in one.keys)


def test_what_was_taken_outlives_the_columns() -> None:
    one = columns()
    expected = [None if value is None else bytes(value) for value in one.values]
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


def test_all_that_is_given_back_is_let_go_of(way: str) -> None:
    size = 10_000

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
    for method in (one.__arrow_c_schema__, one.__arrow_c_array__, one.__arrow_c_stream__):
        with pytest.raises(ImportError, match=r"kohort\[arrow\]"):
            method()
