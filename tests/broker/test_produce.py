"""Produce: accepted and rejected batches, and the error codes."""

from __future__ import annotations

import struct
import zlib

import pytest

from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    InitProducerIdRequest,
    MetadataRequest,
    ProduceResponse,
)
from kohort.records import Compression, NewRecord, RecordBatch, encode_batch
from kohort.testing import Cluster
from tests.broker.partition_requests import BATCH, produce_request
from tests.broker.raw import Raw, join


def outcome(response: ProduceResponse) -> ProduceResponse.PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_is_appended_in_every_version(cluster: Cluster, raw: Raw, version: int) -> None:
    topic_id = raw.ask(MetadataRequest(topics=None), 12).topics[0].topic_id
    request = produce_request(topic_id=bytes(topic_id))
    first, second = outcome(raw.ask(request, version)), outcome(raw.ask(request, version))
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 1)
    (one, two) = cluster.records("t")
    assert (one.offset, one.key, one.value, one.timestamp) == (0, b"k", b"v", 1000)
    assert two.offset == 1


def mangled(at: int) -> bytes:
    data = bytearray(BATCH)
    data[at] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, 87),
        (b"", 87),
        (BATCH[:40], 87),
        (BATCH + BATCH, 87),
        (mangled(-1), 2),
        (mangled(17), 2),
        (mangled(16), 2),
        (encode_batch([NewRecord(0)], last_offset_delta=5), 87),
        (encode_batch([]), 87),
        (encode_batch([NewRecord(0, b"\0\0\0\0", b"\0\0\0\0\0\0")], control=True), 87),
        (encode_batch([NewRecord(0)], transactional=True, producer_id=1), 53),
        (encode_batch([NewRecord(0, None, b"x" * 1_100_000)]), 10),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(
    cluster: Cluster, raw: Raw, records: bytes | None, error: int
) -> None:
    answer = outcome(raw.ask(produce_request(records=records), 9))
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert cluster.records("t") == []


def test_places_that_are_not_there(raw: Raw) -> None:
    assert outcome(raw.ask(produce_request("nosuch"), 9)).error_code == 3
    assert outcome(raw.ask(produce_request(partition=2), 9)).error_code == 3
    assert outcome(raw.ask(produce_request(partition=-1), 9)).error_code == 3
    assert outcome(raw.ask(produce_request(topic_id=b"x" * 16), 13)).error_code == 100
    assert outcome(raw.ask(produce_request(acks=7), 9)).error_code == 21


def test_internal_topics_are_not_for_clients(cluster: Cluster, raw: Raw) -> None:
    join(raw)
    assert outcome(raw.ask(produce_request("__consumer_offsets"), 9)).error_code == 17


def test_zstd_needs_version_7(raw: Raw) -> None:
    records = encode_batch([NewRecord(0, None, b"x")], compression=Compression.ZSTD)
    assert outcome(raw.ask(produce_request(records=records), 6)).error_code == 76
    assert outcome(raw.ask(produce_request(records=records), 7)).error_code == 0


def test_a_broker_that_does_not_lead_says_who_does() -> None:
    with Cluster(brokers=2, topics={"t": 2}) as cluster:
        with Raw(cluster, 1) as raw:
            partitions = raw.ask(MetadataRequest(topics=None), 12).topics[0].partitions
            index = next(p.partition_index for p in partitions if p.leader_id == 2)
            answer = raw.ask(produce_request(partition=index), 10)
            moved = outcome(answer)
            assert (moved.error_code, moved.current_leader.leader_id) == (6, 2)
            assert [node.node_id for node in answer.node_endpoints] == [2]
            assert outcome(raw.ask(produce_request(partition=index), 9)).error_code == 6
        with Raw(cluster, 2) as raw:
            assert outcome(raw.ask(produce_request(partition=index), 9)).error_code == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_refused(raw: Raw, magic: int) -> None:
    body = bytes([magic, 0]) + bytes(8 * magic) + struct.pack(">ii", -1, -1)
    message = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    for records in (message, encode_batch([NewRecord(0)]) + message):
        answer = outcome(raw.ask(produce_request(records=records), 9))
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_log_append_time_is_the_brokers(cluster: Cluster, raw: Raw) -> None:
    cluster.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    answer = outcome(raw.ask(produce_request("stamped"), 9))
    (record,) = cluster.records("stamped")
    assert answer.log_append_time_ms == record.timestamp > 1_600_000_000_000
    assert record.timestamp_type == 1


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_ids_and_lose_no_retry(
    cluster: Cluster, raw: Raw, version: int
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    first, second = raw.ask(request, version), raw.ask(request, version)
    assert first.error_code == first.producer_epoch == 0
    assert second.producer_id != first.producer_id
    batch = encode_batch(
        [NewRecord(0, None, b"x")],
        producer_id=first.producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    for _ in range(3):
        assert outcome(raw.ask(produce_request(records=batch), 9)).base_offset == 0
    assert len(cluster.records("t")) == 1
    gap = encode_batch(
        [NewRecord(0, None, b"x")],
        producer_id=first.producer_id,
        producer_epoch=0,
        base_sequence=5,
    )
    assert outcome(raw.ask(produce_request(records=gap), 9)).error_code == 45


def test_bytes_are_stored_as_they_came(cluster: Cluster, raw: Raw) -> None:
    records = encode_batch([NewRecord(7, b"k", b"v" * 500)], compression=Compression.SNAPPY)
    raw.ask(produce_request(records=records), 9)
    (stored,) = cluster._call(
        lambda server: [
            bytes(b.raw) for b in server.state.topics._by_name["t"].partitions[0].log.batches()
        ]
    )
    batch = RecordBatch.of(stored)
    batch.check_crc()
    assert stored[21:] == records[21:]
