"""Parts of columns and tables: records by index, slices, filters and datetimes."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.records import (
    NewRecord,
    RecordColumns,
    RecordSet,
    RecordTable,
    TablePlan,
    encode_batch,
    to_columns,
)

COUNT = 70


def columns(partition: int = 0, first: int = 0, times: list[int] | None = None) -> RecordColumns:
    moments = times or range(1_000, 1_000 + COUNT)
    data = encode_batch([NewRecord(ms, None, b"%d" % n) for n, ms in enumerate(moments)])
    plan = TablePlan()
    RecordSet(data, first, topic="orders", partition=partition).add_rows_to(plan)
    [found] = to_columns(plan)
    return found


TABLE = RecordTable([columns(0)[3:20], columns(1), columns(2, first=60)])
RECORDS = list(TABLE)
BOUND = st.none() | st.integers(-120, 120)


@given(BOUND, BOUND)
@settings(max_examples=60, deadline=None)
def test_slice_has_the_records_of_a_list_slice(start: int | None, stop: int | None) -> None:
    part = TABLE[start:stop]
    assert list(part) == RECORDS[start:stop]
    assert pa.table(part)["value"].to_pylist() == [each.value for each in RECORDS[start:stop]]


@given(st.integers(-120, 120))
@settings(max_examples=60, deadline=None)
def test_index_returns_the_record_of_a_list(index: int) -> None:
    if -len(RECORDS) <= index < len(RECORDS):
        assert TABLE[index] == RECORDS[index]
    else:
        with pytest.raises(IndexError):
            TABLE[index]


def test_slice_of_columns_keeps_topic_partition_and_memory() -> None:
    one = columns(4)
    part = one[10:13]
    assert (part.topic, part.partition, part.offset.tolist()) == ("orders", 4, [10, 11, 12])
    assert part[1:][0] == one[11] == list(one)[11]
    assert len(one[5:2]) == 0
    assert pa.table(RecordTable([one[5:2], one[2:4], one[4:6]]))["offset"].num_chunks == 2
    assert part.offset.obj is one.offset.obj


def test_step_is_refused_because_rows_would_not_be_adjacent() -> None:
    for sliced in (columns(), TABLE):
        with pytest.raises(ValueError, match="leave the step 2 out"):
            sliced[::2]


@given(st.sets(st.integers(0, COUNT)))
@settings(max_examples=60, deadline=None)
def test_filter_keeps_the_accepted_records_in_order(wanted: set[int]) -> None:
    kept = TABLE.filter(lambda record: record.offset in wanted)
    assert list(kept) == [each for each in RECORDS if each.offset in wanted]
    assert pa.table(kept)["offset"].to_pylist() == [each.offset for each in kept]
    assert list(TABLE.batches[1].filter(lambda record: record.offset in wanted)) == [
        each for each in TABLE.batches[1] if each.offset in wanted
    ]


def test_datetimes_are_in_utc_and_none_if_unknown() -> None:
    one = columns(times=[0, 1_700_000_000_123, 253_402_300_799_999, 253_402_300_800_000, -1])
    assert one.datetimes() == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        None,
        None,
    ]
