"""Records that iteration buffers at a time: many small ones, few large or slow ones."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.consumer.driver._iteration_buffer import (
    DRAIN_BYTES,
    MAX_GROWTH,
    MIN_RECORDS,
    POLLS_AT_ONCE,
    YIELD_SECONDS,
    DrainSize,
)
from kohort.records import ConsumerRecord


def records(count: int, size: int) -> list[ConsumerRecord[Any, Any]]:
    return [
        ConsumerRecord[Any, Any](
            "t", 0, offset=n, serialized_key_size=-1, serialized_value_size=size
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("size", "count"), [(0, 2000), (100, 2000), (1024, 512), (10_240, 51), (1 << 20, MIN_RECORDS)]
)
def test_drain_size_follows_the_size_of_records(size: int, count: int) -> None:
    drain = DrainSize(500, deserializes=False, timed=False)
    assert drain.count == 500
    drain.adapt([records(500, size)])
    assert drain.count == count
    drain.adapt([records(3, 0)])
    assert drain.count == POLLS_AT_ONCE * 500


def test_drain_size_weighs_the_partitions() -> None:
    drain = DrainSize(500, deserializes=False, timed=False)
    drain.adapt([records(300, 0), records(100, DRAIN_BYTES // 200)])
    assert drain.count == 800


def test_drain_size_keeps_to_max_poll_records_when_deserializing() -> None:
    drain = DrainSize(10, deserializes=True, timed=False)
    assert drain.count == 10
    drain.adapt([records(10, 0)], 100.0)
    assert drain.count == 10


def test_drain_size_keeps_to_a_turn_when_timed() -> None:
    drain = DrainSize(500, deserializes=True, timed=True)
    assert drain.count == 1
    drain.adapt([records(1, 0)], 0.0)
    assert drain.count == MAX_GROWTH
    drain.adapt([records(MAX_GROWTH, 0)], 2 * YIELD_SECONDS)
    assert drain.count == MAX_GROWTH // 2
    drain.adapt([records(5, 0)], 100.0)
    assert drain.count == 1


def test_drain_size_stays_when_nothing_was_taken() -> None:
    drain = DrainSize(500, deserializes=False, timed=False)
    drain.adapt([])
    assert drain.count == 500


def test_drain_size_is_bounded_when_max_poll_records_is_huge() -> None:
    drain = DrainSize(2**31 - 1, deserializes=False, timed=False)
    drain.adapt([records(1, 0)])
    assert 1 <= drain.count <= 2**31 - 1
