"""Ranges split between tasks: every offset once, small ranges together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import InvalidOptionError
from kohort.spark_connector._ranges import (
    OFFSETS_PER_TASK,
    OffsetRange,
    joined,
    split_into_tasks,
    split_range,
)

RANGES = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(st.integers(0, 100), st.integers(0, 3 * OFFSETS_PER_TASK)),
    max_size=8,
).map(lambda found: [OffsetRange(*tp, at, at + size) for tp, (at, size) in found.items()])
MAYBE = st.none() | st.integers(1, 20)


@settings(deadline=None)
@given(RANGES, MAYBE, MAYBE, st.none() | st.integers(1_000, 50_000))
def test_every_offset_is_in_one_task_and_once(
    ranges: list[OffsetRange], least: int | None, most: int | None, records: int | None
) -> None:
    tasks = split_into_tasks(ranges, min_partitions=least, max_tasks=most, max_records=records)
    assert all(tasks)
    assert joined(each for task in tasks for each in task) == sorted(
        each for each in ranges if each.size
    )
    if most is not None:
        assert len(tasks) <= most
    again = split_into_tasks(
        reversed(ranges), min_partitions=least, max_tasks=most, max_records=records
    )
    assert again == tasks


def ranges_of(count: int, size: int) -> list[OffsetRange]:
    return [OffsetRange("t", partition, 0, size) for partition in range(count)]


@pytest.mark.parametrize(
    ("count", "size", "cores", "tasks"),
    [
        (24, 400, None, 24),
        (32, 1, None, 32),
        (1_000, 1, None, 1),
        (1_000, 20, None, 20),
        (1_000, 200, None, 32),
        (1_000, 1_000, None, 100),
        (4, 100, 1, 1),
        (4, 100, 3, 3),
        (4, 100, 64, 4),
        (1_000, 1, 48, 48),
    ],
)
def test_no_core_is_idle_while_partitions_have_records(
    count: int, size: int, cores: int | None, tasks: int
) -> None:
    found = split_into_tasks([*ranges_of(count, size), OffsetRange("u", 0, 5, 5)], cores=cores)
    assert len(found) == tasks
    assert sorted(each for task in found for each in task) == ranges_of(count, size)


def test_small_ranges_share_the_tasks_that_are_allowed() -> None:
    ranges = ranges_of(4, 100)
    assert split_into_tasks(ranges, cores=1) == [ranges]
    assert split_into_tasks(ranges, cores=4, max_tasks=1) == [ranges]


def test_large_ranges_have_a_task_each() -> None:
    ranges = [OffsetRange("t", partition, 0, 5 * OFFSETS_PER_TASK) for partition in range(4)]
    assert sorted(split_into_tasks(ranges)) == [[each] for each in ranges]


def test_a_large_range_is_not_cut_unless_asked_to() -> None:
    whole = OffsetRange("t", 0, 0, 100 * OFFSETS_PER_TASK)
    assert split_into_tasks([whole]) == [[whole]]
    assert len(split_into_tasks([whole], min_partitions=7)) == 7
    sizes = [task[0].size for task in split_into_tasks([whole], max_records=OFFSETS_PER_TASK)]
    assert sizes == [OFFSETS_PER_TASK] * 100


def test_min_partitions_parts_small_ranges_too() -> None:
    ranges = [OffsetRange("t", partition, 0, 100) for partition in range(4)]
    assert len(split_into_tasks(ranges, min_partitions=4)) == 4
    assert len(split_into_tasks(ranges, min_partitions=8)) == 8
    assert len(split_into_tasks(ranges, min_partitions=8, max_tasks=3)) == 3


@settings(deadline=None)
@given(RANGES, st.integers(1, 60), st.none() | st.integers(1_000, 50_000))
def test_there_are_as_many_tasks_as_min_partitions_or_as_offsets(
    ranges: list[OffsetRange], least: int, records: int | None
) -> None:
    tasks = split_into_tasks(ranges, min_partitions=least, max_records=records)
    plain = split_into_tasks(ranges, max_records=records)
    offsets = sum(each.size for each in ranges)
    assert len(tasks) == max(min(least, offsets), len(plain))


@pytest.mark.parametrize(("count", "wanted"), [(3, 4), (3, 5), (4, 5), (7, 30)])
def test_even_ranges_are_cut_into_as_many_as_asked_for(count: int, wanted: int) -> None:
    ranges = [OffsetRange("t", partition, 0, 300) for partition in range(count)]
    assert len(split_into_tasks(ranges, min_partitions=wanted)) == wanted


def test_the_largest_are_cut_first() -> None:
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 1000)]
    tasks = split_into_tasks(ranges, min_partitions=5)
    assert sorted(sum(each.size for each in task) for task in tasks) == [10, 250, 250, 250, 250]


def test_no_offsets_no_tasks() -> None:
    assert split_into_tasks([]) == []
    assert split_into_tasks([OffsetRange("t", 0, 5, 5)], min_partitions=3) == []


def test_a_range_is_cut_into_even_parts() -> None:
    whole = OffsetRange("t", 0, 10, 20)
    assert [each.size for each in split_range(whole, 3)] == [3, 3, 4]
    assert joined(split_range(whole, 3)) == [whole]
    assert len(split_range(whole, 50)) == 10
    assert split_range(whole, 0) == [whole]
    assert str(whole) == "t-0 [10, 20)"


@pytest.mark.parametrize(
    ("wanted", "name"),
    [({"max_records": 1000}, "maxRecordsPerPartition"), ({"min_partitions": 10**12}, "minPart")],
)
def test_ranges_are_not_cut_into_more_than_the_driver_can_hold(
    wanted: dict[str, int], name: str
) -> None:
    with pytest.raises(InvalidOptionError, match=f"option {name}.* would cut"):
        split_into_tasks([OffsetRange("t", 0, 0, 10**18)], **wanted)
