"""Batches as Apache Kafka stores them, from Java, librdkafka, aiokafka and kafka-python."""

from __future__ import annotations

import pytest

from kohort.records import (
    Compression,
    ControlType,
    NewRecord,
    RecordBatch,
    control_type,
    encode_batch,
    end_marker,
    rewrite_header,
    split_batches,
)
from tests.records._vectors import VECTORS, Vector, vector

each = pytest.mark.parametrize("sample", VECTORS, ids=lambda sample: sample.name)


def test_all_thirty_eight_are_there() -> None:
    assert len(VECTORS) == 38
    assert {each.expected["compression"] for each in VECTORS} == {
        codec.name.lower() for codec in Compression
    }


@each
def test_header_and_checksum(sample: Vector) -> None:
    batch = RecordBatch.of(sample.raw)
    header = batch.header
    expected = sample.expected
    batch.check_crc()
    assert header.base_offset == expected["base_offset"]
    assert header.last_offset == expected["last_offset"]
    assert header.next_offset == expected["last_offset"] + 1
    assert header.partition_leader_epoch == expected["leader_epoch"]
    assert header.magic == expected["magic"]
    assert header.crc == expected["crc"]
    assert header.attributes == expected["attributes"]
    assert header.compression.name.lower() == expected["compression"]
    assert ("CreateTime", "LogAppendTime")[header.timestamp_type] == expected["timestamp_type"]
    assert header.base_timestamp == expected["base_timestamp"]
    assert header.max_timestamp == expected["max_timestamp"]
    assert header.producer_id == expected["producer_id"]
    assert header.producer_epoch == expected["producer_epoch"]
    assert header.base_sequence == expected["base_sequence"]
    assert header.count == expected["count"]
    assert header.is_transactional == expected["transactional"]
    assert header.is_control == expected["control"]
    assert header.has_delete_horizon == (expected["delete_horizon_ms"] is not None)
    assert header.size == len(sample.raw)


@each
def test_records(sample: Vector) -> None:
    records = RecordBatch.of(sample.raw).records(topic="t", partition=3)
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in records
    ] == sample.records()
    for record in records:
        assert (record.topic, record.partition) == ("t", 3)
        assert record.leader_epoch == sample.expected["leader_epoch"]
        assert record.checksum is None
        assert record.serialized_key_size == (-1 if record.key is None else len(record.key))
        assert record.serialized_value_size == (-1 if record.value is None else len(record.value))
        assert record.serialized_header_size == (
            sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
            if record.headers
            else -1
        )


def _encoded_again(sample: Vector) -> bytes:
    header = RecordBatch.of(sample.raw).header
    return encode_batch(
        [record[1:] for record in sample.records()],
        base_offset=header.base_offset,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        base_timestamp=header.base_timestamp,
        offset_deltas=[record[0] - header.base_offset for record in sample.records()],
        last_offset_delta=header.last_offset_delta,
    )


@pytest.mark.parametrize(
    "sample",
    [
        sample
        for sample in VECTORS
        if sample.expected["compression"] == "none"
        and sample.expected["timestamp_type"] == "CreateTime"
    ],
    ids=lambda sample: sample.name,
)
def test_plain_batches_are_written_byte_for_byte(sample: Vector) -> None:
    assert _encoded_again(sample) == sample.raw


@each
def test_what_is_written_reads_the_same(sample: Vector) -> None:
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in RecordBatch.of(_encoded_again(sample)).records()
    ] == sample.records()


def test_log_append_time_is_set_as_the_broker_sets_it() -> None:
    produced = vector("rb-none-0")
    appended = vector("rb-lat-0")
    time = appended.expected["max_timestamp"]
    assert rewrite_header(produced.raw, 0, 0, log_append_time=time) == appended.raw


def test_offset_and_epoch_are_set_as_the_broker_sets_them() -> None:
    stored = vector("rb-compact-100")
    header = RecordBatch.of(stored.raw).header
    produced = encode_batch([record[1:] for record in stored.records()])
    assert rewrite_header(produced, header.base_offset, 0) == stored.raw


def test_transaction_markers_equal_those_of_the_coordinator() -> None:
    for name, kind in (("rb-txn-3", ControlType.COMMIT), ("rb-txn-6", ControlType.ABORT)):
        stored = vector(name)
        header = RecordBatch.of(stored.raw).header
        [record] = RecordBatch.of(stored.raw).records()
        assert control_type(record.key) == kind
        marker = end_marker(
            kind, coordinator_epoch=0, timestamp=stored.expected["records"][0]["timestamp"]
        )
        assert (
            encode_batch(
                [marker],
                base_offset=header.base_offset,
                leader_epoch=0,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=True,
                control=True,
            )
            == stored.raw
        )


def test_batches_in_one_buffer_come_out_in_order() -> None:
    batches = list(split_batches(b"".join(sample.raw for sample in VECTORS)))
    assert [bytes(batch.raw) for batch in batches] == [sample.raw for sample in VECTORS]


def test_compaction_leaves_gaps_and_the_last_offset() -> None:
    [batch] = [
        RecordBatch.of(sample.raw)
        for sample in VECTORS
        if sample.expected["count"]
        <= sample.expected["last_offset"] - sample.expected["base_offset"]
    ][:1]
    header = batch.header
    offsets = [record.offset for record in batch.records()]
    assert len(offsets) == header.count < header.last_offset_delta + 1
    assert offsets == sorted(set(offsets))
    assert header.base_offset <= offsets[0] and offsets[-1] <= header.last_offset


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    empty = encode_batch([], base_offset=7, last_offset_delta=4, compression=Compression.GZIP)
    batch = RecordBatch.of(empty)
    batch.check_crc()
    assert batch.records() == []
    assert batch.header.next_offset == 12


def test_a_delete_horizon_is_the_base_of_the_timestamps() -> None:
    data = bytearray(encode_batch([NewRecord(1000, b"k"), NewRecord(1007, b"l")]))
    data[22] |= 0x40
    batch = RecordBatch.of(data)
    assert batch.header.has_delete_horizon
    assert [record.timestamp for record in batch.records()] == [1000, 1007]
