"""RecordSet.next_timestamp(), mostly by the header of the next batch."""

from __future__ import annotations

import pytest

from kohort.records import LOG_APPEND_TIME, Compression, NewRecord, RecordSet, encode_batch

RECORDS = [NewRecord(at, None, b"x") for at in (50, 30, 40)]


def test_header_has_the_time_of_the_first_record() -> None:
    assert RecordSet(encode_batch(RECORDS)).next_timestamp() == 50
    appended = encode_batch(RECORDS, timestamp_type=LOG_APPEND_TIME, max_timestamp=90)
    assert RecordSet(appended).next_timestamp() == 90


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.cases(5)
def test_record_amid_a_batch_is_decoded(codec: Compression) -> None:
    found = RecordSet(encode_batch(RECORDS, compression=codec), 1)
    assert found.next_timestamp() == 30
    found.read(1)
    assert [record.timestamp for record in found.records] == [30, 40]
    found.used = 1
    assert found.next_timestamp() == 40


def test_delete_horizon_is_not_taken_for_a_time() -> None:
    batch = encode_batch(RECORDS, delete_horizon_ms=7)
    assert RecordSet(batch).next_timestamp() == 50


def test_nothing_is_known_of_an_end_and_of_bad_bytes() -> None:
    assert RecordSet(b"").next_timestamp() is None
    found = RecordSet(encode_batch(RECORDS))
    found.read(9)
    found.used = 3
    assert found.next_timestamp() is None
    cut = bytearray(encode_batch(RECORDS))
    cut[70:] = b"\xff" * (len(cut) - 70)
    assert RecordSet(bytes(cut), 1).next_timestamp() is None
