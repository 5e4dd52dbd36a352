"""The fields that each version can encode and decode."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import MessageDecodeError, MessageEncodeError
from kohort.protocol import (
    ZERO_UUID,
    Message,
    decode,
    decode_from,
    encode,
    encode_parts,
)
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupMemberMetadataValue,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)


def test_a_field_that_the_version_lacks_must_hold_its_default() -> None:
    message = HeartbeatRequest(group_id="g", group_instance_id="static")
    assert decode(HeartbeatRequest, 3, encode(message, 3)) == message
    with pytest.raises(MessageEncodeError, match=r"group_instance_id='static'.*in versions 3"):
        encode(message, 2)


def test_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    sent = HeartbeatResponse(throttle_time_ms=9, error_code=27)
    assert decode(HeartbeatResponse, 0, encode(sent, 0)) == HeartbeatResponse(error_code=27)


def test_none_is_not_the_default_of_an_array() -> None:
    message = OffsetFetchRequest(topics=None, groups=[])
    with pytest.raises(MessageEncodeError, match="topics=None"):
        encode(message, 8)


def test_tagged_array_of_none_differs_from_an_empty_one() -> None:
    topic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    for epochs in (None, [], [3, 4]):
        message = ConsumerGroupCurrentMemberAssignmentValue(
            assigned_partitions=[topic(partitions=[1], assignment_epochs=epochs)]
        )
        again = decode(ConsumerGroupCurrentMemberAssignmentValue, 0, encode(message, 0))
        assert again.assigned_partitions[0].assignment_epochs == epochs


def test_tagged_structure_of_none_differs_from_its_default() -> None:
    for metadata in (None, ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()):
        message = ConsumerGroupMemberMetadataValue(classic_member_metadata=metadata)
        again = decode(ConsumerGroupMemberMetadataValue, 0, encode(message, 0))
        assert again.classic_member_metadata == metadata


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (JoinGroupResponse(protocol_name=None), 6),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None)]), 9),
    ],
    ids=["array", "string", "string in an array"],
)
def test_none_is_refused_where_the_version_has_no_null(message: Message, version: int) -> None:
    with pytest.raises(MessageEncodeError, match="must not be None in this version"):
        encode(message, version)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 0, b"\xff\xff\xff\xff"),
        (HeartbeatRequest, 0, b"\xff\xff\0\0\0\0\0\0"),
        (HeartbeatRequest, 4, b"\0\0\0\0\0\1\0\0"),
        (JoinGroupResponse, 0, b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + bytes(20)),
    ],
    ids=["array", "string", "compact string", "string of an older version"],
)
def test_null_is_refused_where_the_version_has_none(
    cls: type[Message], version: int, data: bytes
) -> None:
    with pytest.raises(MessageDecodeError, match="a length of -1"):
        decode(cls, version, data)


def test_null_and_empty_stay_apart() -> None:
    cases: list[list[MetadataRequest.MetadataRequestTopic] | None] = [None, []]
    for topics in cases:
        for version in (1, 9, 13):
            again = decode(
                MetadataRequest, version, encode(MetadataRequest(topics=topics), version)
            )
            assert again.topics == topics
    for records in (None, b""):
        for version in (4, 12):
            part = FetchResponse.PartitionData(records=records)
            message = FetchResponse(
                responses=[FetchResponse.FetchableTopicResponse(partitions=[part])]
            )
            answer = decode(FetchResponse, version, encode(message, version))
            assert answer.responses[0].partitions[0].records == records


def test_an_error_code_nobody_knows_stays_an_int() -> None:
    for code in (-1, 9999, 32767, -32768):
        again = decode(HeartbeatResponse, 4, encode(HeartbeatResponse(error_code=code), 4))
        assert again.error_code == code
        assert type(again.error_code) is int


def _fetched(frame: bytes | bytearray | memoryview, version: int) -> memoryview:
    answer = decode(FetchResponse, version, frame)
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    return records


@pytest.mark.parametrize("version", [4, 11, 12, 18])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_slices_of_the_frame(version: int, kind: type[Any]) -> None:
    part = FetchResponse.PartitionData(records=b"r" * 1000)
    message = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[part])])
    data = encode(message, version)
    frame = kind(data)
    records = _fetched(frame, version)
    assert records == b"r" * 1000
    assert records.obj is (data if kind is memoryview else frame)


def test_bytes_are_slices_of_the_frame() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m" * 50)
    frame = encode(JoinGroupRequest(protocols=[protocol]), 7)
    metadata = decode(JoinGroupRequest, 7, frame).protocols[0].metadata
    assert isinstance(metadata, memoryview)
    assert metadata.obj is frame


def test_records_are_written_uncopied() -> None:
    records = bytearray(b"r" * 1000)
    data = ProduceRequest.PartitionProduceData(records=records)
    message = ProduceRequest(
        topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )
    assert any(part is records for part in encode_parts(message, 9))


def test_tagged_fields_are_omitted_at_default_and_kept_otherwise() -> None:
    plain = FetchRequest(max_wait_ms=1)
    assert b"the-cluster" not in encode(plain, 15)
    full = FetchRequest(
        max_wait_ms=1,
        cluster_id="the-cluster",
        replica_state=FetchRequest.ReplicaState(replica_id=3, replica_epoch=4),
    )
    data = encode(full, 15)
    assert decode(FetchRequest, 15, data) == full
    with pytest.raises(MessageEncodeError, match="replica_state"):
        encode(full, 14)


def test_a_tag_nobody_knows_is_skipped() -> None:
    data = encode(HeartbeatResponse(error_code=1), 4)
    assert data[-1] == 0
    strange = data[:-1] + b"\x02" + b"\x05\x03abc" + b"\xc8\x01\x00"
    assert decode(HeartbeatResponse, 4, strange) == HeartbeatResponse(error_code=1)


@pytest.mark.parametrize("size", [3, 5], ids=["too long a field", "too short a field"])
def test_a_tagged_field_must_fill_its_size(size: int) -> None:
    data = encode(FetchRequest(cluster_id="abc"), 12)
    assert data.endswith(b"\x01\x00\x04\x04abc")
    wrong = data[: -len(b"\x04\x04abc")] + bytes([size]) + b"\x04abc" + b"\x00"
    with pytest.raises(MessageDecodeError, match="cluster_id: its tagged field is 1 bytes too"):
        decode(FetchRequest, 12, wrong)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_that_is_not_is_an_error_both_ways(version: int) -> None:
    with pytest.raises(
        MessageEncodeError, match=f"HeartbeatRequest has versions 0-4, not {version}"
    ):
        encode(HeartbeatRequest(), version)
    with pytest.raises(
        MessageDecodeError, match=f"HeartbeatRequest has versions 0-4, not {version}"
    ):
        decode(HeartbeatRequest, version, b"")


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (HeartbeatRequest(generation_id=1 << 31), 0),
        (HeartbeatResponse(error_code=-32769), 0),
        (HeartbeatRequest(group_id="g" * 32768), 0),
        (HeartbeatRequest(group_id="g" * 32768), 4),
        (HeartbeatRequest(group_id="\ud800"), 0),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=b"short")]), 10),
        (ConsumerGroupHeartbeatRequest(subscribed_topic_names=["t" * 40000]), 0),
    ],
    ids=["int32", "int16", "string", "compact string", "surrogate", "uuid", "string in an array"],
)
def test_a_value_that_does_not_fit_is_an_error(message: Message, version: int) -> None:
    with pytest.raises(MessageEncodeError, match=f"cannot write {type(message).__name__} version"):
        encode(message, version)


@pytest.mark.parametrize(("value", "text"), [("text", b"bytes"), (5, 5), (1.5, None)])
def test_a_value_of_the_wrong_type_is_an_error(value: Any, text: Any) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=value)
    with pytest.raises(MessageEncodeError, match="cannot write JoinGroupRequest version 7"):
        encode(JoinGroupRequest(protocols=[protocol]), 7)
    with pytest.raises(MessageEncodeError):
        encode(HeartbeatRequest(group_id=text), 0)


def test_bytes_left_over_are_an_error() -> None:
    data = encode(HeartbeatResponse(), 4) + b"\0\0"
    with pytest.raises(MessageDecodeError, match="2 bytes are left over"):
        decode(HeartbeatResponse, 4, data)
    assert decode_from(HeartbeatResponse, 4, data, 0) == (HeartbeatResponse(), len(data) - 2)


def test_text_that_is_not_utf8_is_an_error() -> None:
    data = encode(ApiVersionsRequest(client_software_name="kohort"), 3).replace(b"koh", b"k\xffh")
    with pytest.raises(MessageDecodeError, match="UTF-8"):
        decode(ApiVersionsRequest, 3, data)


def test_what_was_absent_decodes_to_a_default_of_its_own() -> None:
    data = encode(OffsetCommitRequest(group_id="g"), 2)
    first, second = decode(OffsetCommitRequest, 2, data), decode(OffsetCommitRequest, 2, data)
    assert first == second
    assert first.topics is not second.topics
    topic = MetadataResponse.MetadataResponseTopic(name="t")
    again = decode(MetadataResponse, 1, encode(MetadataResponse(topics=[topic]), 1))
    assert again.topics[0].topic_id == ZERO_UUID
