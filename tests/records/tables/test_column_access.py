"""Columns by index, slice, view and iteration, and the records of a partition as an iterable."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from kohort.records import (
    NewRecord,
    RecordColumns,
    RecordSet,
    RecordTable,
    TablePlan,
    arrow_schema,
    encode_batch,
    to_columns,
)
from tests.support.undisturbed import least, peak

COUNT = 200
VALUES = [None if n % 7 == 3 else b'{"n": %d}' % n for n in range(COUNT)]
HEADERS = [[("h", b"%d" % n), ("ü", None)][: n % 3] for n in range(COUNT)]


def columns(size: int = 0, first: int = 0) -> RecordColumns:
    """Return the rows from ``first`` on. With ``size``, all values have this number of bytes."""
    data = encode_batch(
        [
            NewRecord(1_000 + n, b"k%d" % n, bytes(size) if size else VALUES[n], HEADERS[n])
            for n in range(COUNT)
        ]
    )
    plan = TablePlan()
    RecordSet(data, first, topic="orders", partition=3).add_rows_to(plan)
    [found] = to_columns(plan)
    return found


def test_an_entry_is_bytes_that_json_takes() -> None:
    one = columns()
    assert [None if value is None else json.loads(value)["n"] for value in one.value] == [
        None if n % 7 == 3 else n for n in range(COUNT)
    ]
    first = one.value[0]
    assert type(first) is bytes
    assert json.loads(first) == {"n": 0}
    assert one.value[3] is None
    assert (one.key[1], one.key[-1]) == (b"k1", b"k199")


def test_iteration_gives_the_entries_at_each_index() -> None:
    for size in (0, 5, 2_000):  # the entries of 64 rows are copied at once only if they are small
        for first in (0, 1, 63, 130):
            one = columns(size, first)
            for column in one.key, one.value, one.value[1:], one.value[5:70], one.value[::-3]:
                assert [*column] == [column[n] for n in range(len(column))]
            assert [*one.value[:0]] == []


def test_iteration_of_large_values_reads_the_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An access by index for each value would take twice the time."""
    values = [None if n % 7 == 3 else b"%d" % n * 2_000 for n in range(COUNT)]
    plan = TablePlan()
    data = encode_batch([NewRecord(1_000, None, value) for value in values])
    RecordSet(data, 0, topic="orders", partition=3).add_rows_to(plan)
    [one] = to_columns(plan)
    column = one.value
    with monkeypatch.context() as patch:
        patch.delattr(type(column), "view")
        assert [*column] == values
    assert [*column[::2]] == values[::2]


def test_slices_and_negative_indexes_are_those_of_a_list() -> None:
    one = columns()
    for cut in (slice(2, 90), slice(None, None, -1), slice(-70, None, 9), slice(5, 5)):
        assert [*one.value[cut]] == VALUES[cut]
        assert [*one.headers[cut]] == [tuple(each) for each in HEADERS[cut]]
    assert [one.value[n] for n in (-1, -COUNT)] == [VALUES[-1], VALUES[0]]
    assert one.headers[-1] == tuple(HEADERS[-1])
    for column in one.key, one.value, one.headers:
        assert len(column) == COUNT
        for index in (COUNT, -COUNT - 1):
            with pytest.raises(IndexError):
                column[index]
    assert VALUES[8] in one.value
    assert one.value.index(VALUES[9]) == 9


def test_a_view_reads_the_table_in_place() -> None:
    one = columns(5_000)
    view = one.value.view(-1)
    assert view is not None
    assert (view.readonly, view.tobytes()) == (True, bytes(5_000))
    assert columns().value.view(3) is None
    tracemalloc.start()
    try:
        assert least(lambda: peak(lambda: one.value.view(0)), 2_000) <= 2_000
    finally:
        tracemalloc.stop()


def test_numbers_have_the_buffer_protocol() -> None:
    np = pytest.importorskip("numpy")
    one = columns()
    assert np.asarray(one.offset).tolist() == list(range(COUNT))
    assert np.asarray(one.timestamp).dtype == np.int64
    assert np.asarray(one.timestampType).dtype == np.int32
    value = one.value.view(0)
    assert np.frombuffer(value, "u1").tobytes() == VALUES[0]


def test_iteration_gives_as_many_records_as_len_says() -> None:
    one = columns()
    records = list(one)
    assert len(records) == len(one) == COUNT
    assert {(each.topic, each.partition) for each in records} == {("orders", 3)}
    assert [each.value for each in records] == VALUES
    assert [each.headers for each in records] == [tuple(each) for each in HEADERS]
    assert list(one) == records


def test_iteration_reads_a_few_entries_at_a_time() -> None:
    one = columns(5_000)
    limit = 200_000  # all records have 1,000,000 bytes of values

    def read() -> None:
        for _ in one:
            pass

    tracemalloc.start()
    try:
        assert least(lambda: peak(read), limit) <= limit
    finally:
        tracemalloc.stop()


def test_attributes_have_the_names_of_arrows_columns() -> None:
    one = columns()
    batch = pa.record_batch(one)
    assert batch.schema.names == arrow_schema().names
    for name in batch.schema.names:
        column, expected = getattr(one, name), batch.column(name)
        if name in ("topic", "partition"):
            assert {column} == set(expected.to_pylist())
        elif name == "headers":
            found = [
                tuple((header["key"], header["value"]) for header in each)
                for each in expected.to_pylist()
            ]
            assert list(column) == found
        elif name == "timestamp":
            assert list(column) == expected.cast("int64").to_pylist()
        else:
            assert list(column) == expected.to_pylist(), name


def test_a_table_has_the_records_of_all_columns() -> None:
    parts = [columns(), columns(first=150)]
    table = RecordTable(iter(parts))
    assert len(table) == COUNT + 50
    assert list(table) == [*parts[0], *parts[1]]
    assert table.batches == tuple(parts)
    assert repr(table) == f"<RecordTable of 2 batches: {COUNT + 50} records>"
    assert (len(RecordTable([])), list(RecordTable([]))) == (0, [])


def test_table_of_other_objects_raises_a_type_error() -> None:
    one = columns()
    wrong: Any
    for wrong, text in (
        (one, "a list of RecordColumns, not RecordColumns: pass [columns]"),
        ([[one]], "RecordColumns, not list: pass [columns]"),
        ([1], "RecordColumns, not int: pass [columns]"),
        (list(one), "RecordColumns, not ConsumerRecord: pass [columns]"),
        (RecordTable([one]), "RecordColumns, not RecordTable: pass table.batches"),
        (RecordTable([]), "RecordColumns, not RecordTable: pass table.batches"),
        ([RecordTable([one])], "RecordColumns, not RecordTable: pass table.batches"),
        ([pa.record_batch(one)], "RecordColumns, not RecordBatch: pass [columns]"),
        (pa.record_batch(one), "RecordColumns, not BinaryArray: pass [columns]"),
    ):
        with pytest.raises(TypeError) as caught:
            RecordTable(wrong)
        assert str(caught.value) == f"RecordTable needs {text}"


def test_view_of_a_slice_raises_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="'slice' object cannot be interpreted as an integer"):
        columns().value.view(slice(2))  # type: ignore[arg-type]
