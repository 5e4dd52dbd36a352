"""One completed fetch: the records taken from it, and the position after them."""

from __future__ import annotations

import pickle
import sys
from types import FrameType
from typing import Any

import pytest

from kohort.errors import (
    CorruptBatchError,
    DecompressionBudgetError,
    RecordDeserializationError,
)
from kohort.fetcher.buffer._completed import CompletedFetch
from kohort.fetcher.buffer._deserialize import KeptBytes, record_deserializer
from kohort.fetcher.buffer._memory import FetchMemory
from tests.fetcher.making import (
    T0,
    Compression,
    ControlType,
    CountedLease,
    batch,
    broken,
    compacted,
    fetched,
    marker,
    offsets,
    owning,
)


def of(offset: int, *data: bytes, **options: Any) -> CompletedFetch:
    return fetched(owning(T0), T0, offset, *data, **options)


def test_records_come_in_slices_and_the_position_follows_them() -> None:
    fetch = of(0, batch(0, 5), batch(5, 5))
    assert fetch.next_offset == 10
    assert offsets(fetch.take(3)) == [0, 1, 2]
    assert fetch.position == 3
    assert offsets(fetch.take(4)) == [3, 4, 5, 6]
    assert fetch.position == 7
    assert not fetch.is_exhausted
    assert offsets(fetch.take(100)) == [7, 8, 9]
    assert fetch.position == 10
    assert fetch.is_exhausted
    assert fetch.take(100) == []


def test_records_know_where_they_are_from() -> None:
    [record] = of(4, batch(4, 1)).take(1)
    assert (record.topic, record.partition, record.offset, record.value) == ("t", 0, 4, b"4")
    assert record.leader_epoch == 3


def test_records_before_the_offset_asked_for_are_passed_over() -> None:
    fetch = of(7, batch(0, 5), batch(5, 5))
    assert offsets(fetch.take(1)) == [7]
    assert offsets(fetch.take(100)) == [8, 9]


def test_position_passes_gaps_of_compaction_and_empty_batches() -> None:
    fetch = of(0, compacted(0, [2, 5], 9), compacted(10, [], 19), batch(20, 1))
    assert offsets(fetch.take(1)) == [2]
    assert fetch.position == 3
    assert offsets(fetch.take(1)) == [5]
    assert fetch.position == 10
    assert offsets(fetch.take(5)) == [20]
    only_gaps = of(3, compacted(0, [], 9))
    assert only_gaps.next_offset == 10
    assert only_gaps.take(5) == []
    assert only_gaps.position == 10
    assert only_gaps.is_exhausted


def test_an_offset_in_the_gap_at_the_end_of_a_batch_is_passed() -> None:
    fetch = of(7, compacted(0, [2, 5], 9), batch(10, 1))
    assert offsets(fetch.take(5)) == [10]


def test_position_passes_control_batches_without_returning_them() -> None:
    fetch = of(0, batch(0, 2), marker(2, ControlType.COMMIT, 9))
    assert offsets(fetch.take(10)) == [0, 1]
    assert fetch.position == 3


def test_aborted_transactions_are_left_out() -> None:
    transaction = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    fetch = of(
        0,
        batch(0, 2, **transaction),
        batch(2, 2),
        marker(4, ControlType.ABORT, 9),
        batch(5, 2, **transaction),
        marker(7, ControlType.COMMIT, 9),
        aborted=[(9, 0)],
    )
    assert offsets(fetch.take(10)) == [2, 3, 5, 6]
    assert fetch.position == 8


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_decoded(codec: Compression) -> None:
    assert offsets(of(0, batch(0, 50, compression=codec)).take(99)) == list(range(50))


def test_the_lease_is_released_with_the_last_batch_decoded() -> None:
    lease = CountedLease()
    fetch = of(0, batch(0, 2), batch(2, 2), lease=lease)
    fetch.take(2)
    assert lease.released == 0
    fetch.take(1)
    assert lease.released == 1
    fetch.release()
    assert lease.released == 1


def test_a_shared_lease_is_released_with_its_last_share() -> None:
    lease = CountedLease()
    shared = FetchMemory(100).count(lease, 10)
    shares = [shared.share(), shared.share()]
    shared.release()
    for share in shares:
        assert lease.released == 0
        share.release()
    shares[0].release()
    assert lease.released == 1


def test_a_wrong_crc_comes_after_the_records_before_it_and_stays() -> None:
    bad = broken(batch(3, 4))
    fetch = of(0, batch(0, 3), bad, batch(7, 2))
    assert offsets(fetch.take(100)) == [0, 1, 2]
    for _ in range(2):
        error = fetch.error
        assert isinstance(error, CorruptBatchError)
        assert (error.topic_partition, error.offset, error.next_offset) == (T0, 3, 7)
        assert error.raw == bad
        assert "t-0" in str(error)
        assert "seek" in str(error)
        assert fetch.position == 3
        assert fetch.take(100) == []
    assert not fetch.is_exhausted


def test_crcs_are_not_checked_when_that_is_switched_off() -> None:
    assert offsets(of(0, broken(batch(0, 2)), check_crcs=False).take(9)) == [0, 1]


def test_corrupt_batch_that_starts_earlier_is_reported_at_offset() -> None:
    fetch = of(5, broken(batch(3, 4)))
    assert fetch.take(9) == []
    assert fetch.error is not None
    assert fetch.error.offset == 5


def test_corrupt_batch_before_the_offset_is_ignored() -> None:
    assert offsets(of(4, broken(batch(0, 4)), batch(4, 1)).take(9)) == [4]


def test_batch_over_decompression_budget_is_not_called_corrupt() -> None:
    fetch = of(0, batch(0, 500, compression=Compression.GZIP), budget=100)
    assert fetch.take(9) == []
    assert isinstance(fetch.error, DecompressionBudgetError)
    assert fetch.error.topic_partition == T0


def refusing(*poison: bytes) -> Any:
    def deserialize(topic: str, headers: Any, data: bytes | None) -> Any:
        if data in poison:
            raise LookupError("poison")
        return int(data or b"-1")

    return deserialize


def test_a_raising_deserializer_gives_the_record_and_the_way_on() -> None:
    poison = refusing(b"2")
    fetch = of(0, batch(0, 4), deserialize=record_deserializer(None, poison))
    taken = fetch.take(100)
    assert [record.value for record in taken] == [0, 1]
    assert taken[0].serialized_value_size == 1
    error = fetch.error
    assert isinstance(error, RecordDeserializationError)
    assert isinstance(error.__cause__, LookupError)
    assert (error.topic_partition, error.offset, error.next_offset) == (T0, 2, 3)
    assert error.raw == b"2"
    assert "value" in str(error)
    assert fetch.position == 2


def test_a_deserializer_that_recovers_goes_on_where_it_failed() -> None:
    poison = [b"2"]

    def value(topic: str, headers: Any, data: bytes | None) -> Any:
        if data in poison:
            raise LookupError("poison")
        return data

    fetch = of(0, batch(0, 4), deserialize=record_deserializer(None, value))
    assert offsets(fetch.take(100)) == [0, 1]
    assert fetch.take(100) == []
    poison.clear()
    assert offsets(fetch.take(100)) == [2, 3]
    assert fetch.error is None
    assert fetch.is_exhausted


def test_keys_are_deserialized_too_and_told_apart_in_errors() -> None:
    def key(topic: str, headers: Any, data: bytes | None) -> Any:
        raise ValueError("no")

    fetch = of(0, batch(0, 1), deserialize=record_deserializer(key, None))
    fetch.take(1)
    assert fetch.error is not None
    assert "the key of t-0 offset 0" in str(fetch.error)
    assert fetch.error.raw == b"k"


def test_records_keep_their_bytes_only_if_asked_to() -> None:
    kept = KeptBytes()
    fetch = of(0, batch(0, 4), deserialize=record_deserializer(None, refusing(), kept))
    (before,) = fetch.take(1)
    kept.turn_on()
    (after,) = fetch.take(1)
    assert before._kept_bytes() is None
    assert after._kept_bytes() == (b"k", b"1")
    assert (after.key, after.value) == (b"k", 1)
    assert after.serialized_value_size == 1
    assert pickle.loads(pickle.dumps(after)) == after
    assert pickle.loads(pickle.dumps(after))._kept_bytes() is None


def test_what_was_taken_can_be_put_back() -> None:
    fetch = of(0, batch(0, 3), batch(3, 3))
    first = fetch.take(2)
    second = fetch.take(2)
    fetch.put_back(second)
    assert fetch.position == 2
    fetch.put_back(first)
    assert fetch.position == 0
    assert offsets(fetch.take(3)) == [0, 1, 2]
    assert fetch.position == 3
    assert offsets(fetch.take(9)) == [3, 4, 5]
    assert fetch.is_exhausted


def test_an_interrupt_in_a_deserializer_loses_nothing() -> None:
    interrupt = [4]

    def value(topic: str, headers: Any, data: bytes | None) -> Any:
        if interrupt and data == b"%d" % interrupt[0]:
            interrupt.pop()
            raise KeyboardInterrupt
        return data

    fetch = of(0, batch(0, 3), batch(3, 3), deserialize=record_deserializer(None, value))
    with pytest.raises(KeyboardInterrupt):
        fetch.take(100)
    assert fetch.position == 0
    assert offsets(fetch.take(100)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [None, bytes])
def test_an_interrupt_anywhere_loses_nothing(value: Any) -> None:
    """Python raises KeyboardInterrupt when a function begins or a built-in one has returned."""
    deserialize = value and record_deserializer(None, lambda topic, headers, data: value(data))
    for at in range(1, 10_000):
        fetch = of(0, batch(0, 2), batch(2, 2), deserialize=deserialize)
        left = at

        def interrupt(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal left
            left -= event in ("call", "c_return")
            if not left:
                sys.setprofile(None)
                raise KeyboardInterrupt

        try:
            sys.setprofile(interrupt)
            taken = fetch.take(3)
            sys.setprofile(None)
        except KeyboardInterrupt:
            taken = []
        else:
            break
        finally:
            sys.setprofile(None)
        assert offsets(fetch.take(3)) == [0, 1, 2]
        assert offsets(fetch.take(3)) == [3]
    assert offsets(taken) == [0, 1, 2]
    assert at > 10
