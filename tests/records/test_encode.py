"""Encoded batches: kohort, kafka-python and aiokafka read the same records."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError
from kohort.records import (
    LOG_APPEND_TIME,
    Compression,
    NewRecord,
    RecordBatch,
    crc32c,
    encode_batch,
    rewrite_header,
)

with warnings.catch_warnings():  # importing kafka-python raises a DeprecationWarning
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords

TIMESTAMPS = st.integers(-1, 2**62)
CONTENT = st.none() | st.binary(max_size=300) | st.builds(bytes, st.integers(8000, 20000))
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=100)), max_size=4)
RECORDS = st.lists(st.builds(NewRecord, TIMESTAMPS, CONTENT, CONTENT, HEADERS), max_size=30)


@given(
    records=RECORDS,
    base_offset=st.integers(0, 2**62),
    compression=st.sampled_from(Compression),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
@settings(deadline=None)
def test_any_records_come_back(
    records: list[NewRecord], base_offset: int, compression: Compression, leader_epoch: int
) -> None:
    data = encode_batch(
        records, base_offset=base_offset, compression=compression, leader_epoch=leader_epoch
    )
    batch = RecordBatch.of(data)
    batch.check_crc()
    assert batch.header.compression == compression
    assert batch.header.count == len(records)
    read = batch.records()
    assert [record.offset for record in read] == [base_offset + n for n in range(len(records))]
    assert [
        NewRecord(record.timestamp, record.key, record.value, list(record.headers))
        for record in read
    ] == records
    assert {record.leader_epoch for record in read} <= {leader_epoch}


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, min_size=1, max_size=20).map(sorted))
def test_offsets_may_have_gaps(deltas: list[int]) -> None:
    data = encode_batch(
        [NewRecord(0)] * len(deltas),
        base_offset=50,
        offset_deltas=deltas,
        last_offset_delta=2**31 - 1,
    )
    batch = RecordBatch.of(data)
    assert [record.offset for record in batch.records()] == [50 + delta for delta in deltas]
    assert batch.header.next_offset == 50 + 2**31


MIXED = [
    NewRecord(10**12, b"k", b"v" * 200, [("h1", b"x"), ("h1", None), ("é", b"")]),
    NewRecord(10**12 - 5, None, b"", []),
    NewRecord(10**12 + 10**6, b"", None, []),
    NewRecord(10**12, b"k" * 100, b"v" * 10_000, []),
] * 40


# kafka-python needs more packages for snappy and zstd, and only these tests would use them.
READERS = [(AiokafkaRecords, codec) for codec in Compression] + [
    (KafkaPythonRecords, codec) for codec in (Compression.NONE, Compression.GZIP, Compression.LZ4)
]


@pytest.mark.parametrize(("library", "compression"), READERS)
def test_others_read_what_is_written(library: Any, compression: Compression) -> None:
    batches = library(encode_batch(MIXED, base_offset=7, compression=compression))
    batch = batches.next_batch()
    assert batch.validate_crc()
    read = list(batch)
    assert [record.offset for record in read] == list(range(7, 7 + len(MIXED)))
    assert [
        NewRecord(record.timestamp, record.key, record.value, list(record.headers))
        for record in read
    ] == MIXED
    assert not batches.has_next()


def test_log_append_time_is_the_time_of_every_record() -> None:
    produced = encode_batch(MIXED)
    appended = RecordBatch.of(rewrite_header(produced, 33, 4, log_append_time=77))
    appended.check_crc()
    assert appended.header.timestamp_type == LOG_APPEND_TIME
    assert {(record.timestamp, record.timestamp_type) for record in appended.records()} == {(77, 1)}
    assert appended.header.base_offset == 33
    assert appended.header.partition_leader_epoch == 4


def test_appending_leaves_the_checksum_and_the_original_alone() -> None:
    produced = bytearray(encode_batch(MIXED))
    before = bytes(produced)
    appended = rewrite_header(produced, 2**40, 9)
    RecordBatch.of(appended).check_crc()
    assert produced == before
    assert appended[17:] == before[17:]


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(bytearray(32))) == 0x8A9136AA


def test_deltas_and_records_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        encode_batch([NewRecord(0)], offset_deltas=[0, 1])


def test_a_batch_shows_what_it_is() -> None:
    batch = RecordBatch.of(encode_batch([NewRecord(0), NewRecord(1)], base_offset=5))
    assert repr(batch) == f"<RecordBatch offsets 5..6, 2 records, {len(batch.raw)} bytes>"
    with pytest.raises(CorruptBatchError):
        RecordBatch.of(bytes(batch.raw) + b"x")
