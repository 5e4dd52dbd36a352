"""Rows of tables: both decoders return the records of the same bytes, valid or not."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError
from kohort.records import (
    Compression,
    NewRecord,
    RecordColumns,
    RecordSet,
    Scratch,
    SizeHistory,
    TablePlan,
    encode_batch,
    to_columns,
)
from tests.records.batches import BATCHES, encoded
from tests.support.decoders import NAMES, use_decoder
from tests.support.undisturbed import least, peak

MANY = 1 << 20


def _record(record: Any) -> tuple[Any, ...]:
    return (
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.serialized_key_size,
        record.serialized_value_size,
        record.serialized_header_size,
    )


def _failed(error: CorruptBatchError) -> tuple[Any, ...]:
    return type(error), str(error), error.offset, error.next_offset, error.raw


def _records(data: bytes, offset: int, check_crcs: bool) -> list[tuple[Any, ...]]:
    found = RecordSet(data, offset, topic="t", partition=3, check_crcs=check_crcs)
    out: list[tuple[Any, ...]] = []
    try:
        while not found.done:
            found.read(5)
            out += map(_record, found.records)
    except CorruptBatchError as error:
        return [*out, _failed(error)]
    return [*out, (found.passed,)]


def _rows(
    data: bytes, offset: int, check_crcs: bool, max_rows: int, max_bytes: int
) -> list[tuple[Any, ...]]:
    found = RecordSet(data, offset, topic="t", partition=3, check_crcs=check_crcs)
    out: list[tuple[Any, ...]] = []
    try:
        while not found.done:
            plan = TablePlan(max_rows, max_bytes)
            before = found.passed
            rows = found.add_rows_to(plan)
            assert rows == plan.rows <= max_rows
            assert rows or found.done or found.passed > before, "an endless loop"
            for columns in to_columns(plan):
                out += map(_record, columns)
            if rows:
                assert out[-1][2] < found.passed
    except CorruptBatchError as error:
        return [*out, _failed(error)]
    return [*out, (found.passed,)]


def _same(
    data: bytes,
    offset: int = 0,
    max_rows: int = MANY,
    max_bytes: int = MANY,
    *,
    check_crcs: bool = True,
) -> None:
    for name in NAMES:
        with pytest.MonkeyPatch.context() as patch:
            use_decoder(name, patch)
            records = _records(data, offset, check_crcs)
            assert _rows(data, offset, check_crcs, max_rows, max_bytes) == records, name


@settings(deadline=None)
@given(BATCHES, st.integers(0, 20), st.integers(1, 9), st.integers(1, 1500))
def test_rows_are_the_records(batches: Any, offset: int, max_rows: int, max_bytes: int) -> None:
    _same(encoded(batches), offset, max_rows, max_bytes)


@settings(deadline=None)
@given(BATCHES, st.data())
def test_broken_data_gives_the_same_rows_and_then_the_same_error(
    batches: Any, draw: st.DataObject
) -> None:
    data = bytearray(encoded(batches))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(data)))
    max_rows = draw.draw(st.integers(1, 9))
    _same(bytes(data[:cut]), 0, max_rows, check_crcs=draw.draw(st.booleans()))


@pytest.mark.parametrize("period", [1, 2, 3, 8])
def test_rows_are_null_where_records_are_across_batches(period: int) -> None:
    data = b""
    offset = 0
    for count in (1, 9, 7, 8, 16, 3, 30):
        records = [
            NewRecord(
                -1 if n % period == 0 else n,
                None if n % period == 0 else b"k" * (n % 20),
                None if n % (period + 1) == 0 else b"v" * n,
                [("h", None if n % 2 else b"x")] if n % 5 == 4 else [],
            )
            for n in range(count)
        ]
        data += encode_batch(records, base_offset=offset)
        offset += count
    for first in (0, 1, 12):
        for max_rows in (MANY, 1, 10):
            _same(data, first, max_rows)


def test_no_room_is_made_for_a_batch_that_is_wrong() -> None:
    for name in NAMES:
        with pytest.MonkeyPatch.context() as patch:
            use_decoder(name, patch)
            sizes: list[int] = []

            def allocate(size: int, sizes: list[int] = sizes) -> memoryview:
                sizes.append(size)
                return memoryview(bytearray(size))

            data = bytearray(encode_batch([NewRecord(1, b"k", b"v" * 900)] * 2))
            data[-1] = 1  # the last record has a negative number of headers
            found = RecordSet(bytes(data), topic="t", partition=0, check_crcs=False)
            with pytest.raises(CorruptBatchError):
                found.add_rows_to(TablePlan(allocate=allocate))
            assert sizes == [], name


def test_a_batch_over_the_limit_comes_alone() -> None:
    data = b"".join(
        encode_batch([NewRecord(1, None, b"v" * 500)], base_offset=offset) for offset in range(3)
    )
    found = RecordSet(data, 0, topic="t", partition=0)
    sizes = []
    while not found.done:
        plan = TablePlan(max_bytes=100)
        found.add_rows_to(plan)
        sizes.append(plan.rows)
        assert not plan.has_room or found.done
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_headers_count_for_the_limit(codec: Compression) -> None:
    headers = [("name" * 20, b"value" * 20)] * 10
    data = b"".join(
        encode_batch([NewRecord(1, None, None, headers)], base_offset=offset, compression=codec)
        for offset in range(3)
    )
    found = RecordSet(data, 0, topic="t", partition=0)
    sizes = []
    while not found.done:
        plan = TablePlan(max_bytes=3000)
        found.add_rows_to(plan)
        sizes.append(plan.rows)
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_table_like_the_previous_is_built_without_a_second_copy(codec: Compression) -> None:
    text = b"".join(b"%d, " % number for number in range(15_000))
    data = b"".join(
        encode_batch([NewRecord(1, b"k" * 100, text)], base_offset=offset, compression=codec)
        for offset in range(100)
    )
    history, scratch = SizeHistory(), Scratch()

    def table() -> RecordColumns:
        plan = TablePlan(history=history)
        plan.expect(len(data))
        RecordSet(data, 0, topic="t", partition=0, scratch=scratch).add_rows_to(plan)
        return to_columns(plan)[0]

    assert len(table()) == 100
    allowed = 105 * len(text)
    tracemalloc.start()
    try:
        assert least(lambda: peak(table), allowed) <= allowed
    finally:
        tracemalloc.stop()


def test_table_buffers_grow_without_changes_of_their_content() -> None:
    history = SizeHistory()
    headers = [("name", b"value"), ("none", None)]
    for sizes in ([1, 50, 3], [1000, 2], [5] * 400, [70_000, 0], [1]):
        data = b"".join(
            encode_batch(
                [NewRecord(n, b"k" * (n % 3), b"v" * size, headers[: n % 3])], base_offset=n
            )
            for n, size in enumerate(sizes)
        )
        plan = TablePlan(history=history)
        plan.expect(len(data))
        RecordSet(data, 0, topic="t", partition=0).add_rows_to(plan)
        [columns] = to_columns(plan)
        assert [len(value or b"") for value in columns.value] == sizes
        assert list(columns.timestamp) == list(range(len(sizes)))
        assert [columns.headers[n] for n in range(len(sizes))] == [
            tuple(headers[: n % 3]) for n in range(len(sizes))
        ]


def test_columns_are_sequences_of_read_only_views() -> None:
    values = [None if n % 3 == 0 else b"%d" % n for n in range(10)]
    data = encode_batch([NewRecord(n, None, value) for n, value in enumerate(values)])
    plan = TablePlan()
    RecordSet(data, 2, topic="t", partition=0).add_rows_to(plan)
    [columns] = to_columns(plan)
    assert list(columns.value) == values[2:]
    assert [columns.value[n] for n in (0, -1)] == [values[2], values[9]]
    assert list(columns.value[1:-1]) == values[3:-1]
    assert list(columns.value[::-2]) == values[:1:-2]
    assert len(columns.value[6:]) == 2
    with pytest.raises(IndexError):
        columns.value[8]
    assert columns.headers[0] == ()
    assert list(columns.timestamp) == list(columns.offset) == list(range(2, 10))
    every = columns.offset, columns.timestamp, columns.timestampType, columns.value.view(0)
    assert all(view is not None and view.readonly for view in every)
    assert repr(columns) == "<RecordColumns of t-0: 8 records, offsets 2 to 9>"
