"""Records under read_committed: without aborted transactions and control records."""

from __future__ import annotations

import pytest

from kohort.errors import CorruptBatchError
from kohort.records import (
    AbortedTransactions,
    ControlType,
    NewRecord,
    RecordBatch,
    control_type,
    encode_batch,
    end_marker,
)
from tests.records._vectors import VECTORS


def _data(
    offset: int, producer: int = -1, count: int = 2, *, transactional: bool = True
) -> RecordBatch:
    records = [NewRecord(0, b"k", b"v")] * count
    return RecordBatch.of(
        encode_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def _end(offset: int, producer: int, kind: ControlType) -> RecordBatch:
    marker = end_marker(kind, coordinator_epoch=0, timestamp=0)
    return RecordBatch.of(
        encode_batch(
            [marker],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def _delivered(filter: AbortedTransactions, batches: list[RecordBatch]) -> list[int]:
    return [batch.header.base_offset for batch in batches if filter.delivers(batch)]


def test_kafkas_own_log_gives_the_committed_records_only() -> None:
    log = [RecordBatch.of(each.raw) for each in VECTORS if each.expected["topic"] == "rb-txn"]
    assert [batch.header.base_offset for batch in log] == [0, 3, 4, 6, 7]
    assert _delivered(AbortedTransactions([(13, 4)]), log) == [0, 7]
    assert _delivered(AbortedTransactions(), log) == [0, 4, 7]


def test_one_producers_transactions_one_after_the_other() -> None:
    log = [
        _data(0, 1),
        _end(2, 1, ControlType.ABORT),
        _data(3, 1),
        _end(5, 1, ControlType.COMMIT),
        _data(6, 1),
        _end(8, 1, ControlType.ABORT),
        _data(9, 1),
    ]
    assert _delivered(AbortedTransactions([(1, 6), (1, 0)]), log) == [3, 9]


def test_producers_interleaved() -> None:
    log = [
        _data(0, 1),
        _data(2, 2),
        _data(4, 3),
        _end(6, 2, ControlType.COMMIT),
        _data(7, 1),
        _end(9, 1, ControlType.ABORT),
        _data(10, 1),
        _end(12, 3, ControlType.ABORT),
        _end(13, 1, ControlType.COMMIT),
    ]
    assert _delivered(AbortedTransactions([(1, 0), (3, 4)]), log) == [2, 10]


def test_records_outside_of_transactions_are_delivered() -> None:
    log = [_data(0, 1, transactional=False), _data(2, -1, transactional=False), _data(4, 1)]
    assert _delivered(AbortedTransactions([(1, 0)]), log) == [0, 2]


def test_a_second_abort_marker_changes_nothing() -> None:
    abort = ControlType.ABORT
    log = [_data(0, 1), _end(2, 1, abort), _end(3, 1, abort), _data(4, 1)]
    assert _delivered(AbortedTransactions([(1, 0)]), log) == [4]


def test_reading_may_start_within_an_aborted_transaction() -> None:
    log = [_data(20, 1), _end(22, 1, ControlType.ABORT), _data(23, 1)]
    assert _delivered(AbortedTransactions([(1, 3)]), log) == [23]


def test_control_batches_of_other_kinds_are_never_delivered() -> None:
    leader_change = NewRecord(0, b"\x00\x00\x00\x02", b"\x00\x00")
    batch = RecordBatch.of(encode_batch([leader_change], control=True))
    assert not AbortedTransactions().delivers(batch)
    assert control_type(batch.records()[0].key) == 2


def test_a_marker_that_is_none_says_where() -> None:
    marker = encode_batch(
        [NewRecord(0, b"\x00")],
        base_offset=5,
        producer_id=1,
        transactional=True,
        control=True,
    )
    aborted = AbortedTransactions([(1, 0)])
    with pytest.raises(CorruptBatchError, match="control record") as caught:
        aborted.delivers(RecordBatch.of(marker))
    assert (caught.value.offset, caught.value.next_offset) == (5, 6)
    assert caught.value.raw == marker


def test_the_key_of_a_control_record() -> None:
    assert control_type(b"\x00\x00\x00\x00") == ControlType.ABORT
    assert control_type(b"\x00\x01\x00\x01more") == ControlType.COMMIT
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(CorruptBatchError):
            control_type(key)
