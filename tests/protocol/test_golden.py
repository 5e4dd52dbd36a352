"""Frames and records captured from Apache Kafka and real clients: every byte, every field."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pytest

from kohort.protocol import (
    Message,
    Request,
    Response,
    api,
    decode,
    decode_request,
    decode_request_header,
    decode_response,
    encode,
    encode_request,
    encode_response,
    messages,
)
from kohort.protocol.messages import (
    ApiVersionsResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tests.protocol._data import (
    Golden,
    consumer_group_frames,
    golden_frames,
    load,
    share_group_frames,
)
from tests.protocol._kafka_json import json_of

ID = Golden._fields.index("name")


def _frame(parts: list[Any]) -> bytes:
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


def test_every_captured_frame_is_there() -> None:
    frames = golden_frames()
    assert len(frames) == 2 * 261
    assert len({golden.api_key for golden in frames}) == 44


@pytest.mark.parametrize(
    "golden", [g for g in golden_frames() if g.is_request], ids=lambda golden: str(golden[ID])
)
def test_a_captured_request_decodes_and_encodes_again(golden: Golden) -> None:
    _check_request(golden)


def _check_request(golden: Golden) -> None:
    header, message = decode_request(golden.frame)
    assert header.request_api_key == golden.header["requestApiKey"] == golden.api_key
    assert header.request_api_version == golden.header["requestApiVersion"] == golden.version
    assert header.correlation_id == golden.header["correlationId"]
    assert header.client_id == golden.header["clientId"]
    assert decode_request_header(golden.frame) == header
    assert type(message) is api(golden.api_key).request
    assert json_of(message, golden.version) == golden.json
    again = encode_request(message, golden.version, header.correlation_id, header.client_id)
    assert _frame(again) == golden.frame


@pytest.mark.parametrize(
    "golden", [g for g in golden_frames() if not g.is_request], ids=lambda golden: str(golden[ID])
)
def test_a_captured_response_decodes_and_encodes_again(golden: Golden) -> None:
    _check_response(golden)


def _check_response(golden: Golden) -> None:
    correlation_id, message = decode_response(
        api(golden.api_key).response, golden.version, golden.frame
    )
    assert correlation_id == golden.header["correlationId"]
    assert json_of(message, golden.version) == golden.json
    assert _frame(encode_response(message, golden.version, correlation_id)) == golden.frame


def test_frames_of_consumer_groups_encode_to_the_same_bytes() -> None:
    frames = consumer_group_frames()
    assert len(frames) == 2 * 556
    for golden in frames:
        (_check_request if golden.is_request else _check_response)(golden)


def test_frames_of_share_groups_encode_to_the_same_bytes() -> None:
    frames = share_group_frames()
    assert len(frames) == 2 * 728
    assert len({(golden.api_key, golden.version) for golden in frames}) == 16
    for golden in frames:
        (_check_request if golden.is_request else _check_response)(golden)


def test_unknown_api_versions_version_is_readable_and_answered() -> None:
    special = load("wire_frames.json")["special"][0]
    header = decode_request_header(base64.b64decode(special["req"]))
    assert (header.request_api_key, header.request_api_version) == (18, 5)
    frame = base64.b64decode(special["resp"])
    correlation_id, answer = decode_response(ApiVersionsResponse, special["resp_ver"], frame)
    assert correlation_id == header.correlation_id
    only = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
    assert answer == ApiVersionsResponse(error_code=35, api_keys=[only])
    assert _frame(encode_response(answer, 0, correlation_id)) == frame


@pytest.mark.parametrize("blob", load("consumer_protocol.json"), ids=lambda blob: blob["client"])
def test_blobs_of_the_consumer_protocol(blob: dict[str, Any]) -> None:
    raw, version = base64.b64decode(blob["bytes"]), blob["version"]
    user_data = None if blob["user_data"] is None else base64.b64decode(blob["user_data"])
    assert int.from_bytes(raw[:2], "big") == version
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment
    if blob["kind"] == "subscription":
        message = decode(ConsumerProtocolSubscription, version, raw[2:])
        assert message.topics == blob["topics"]
        # The file has all values. Older versions have no field for some of them.
        assert message.generation_id == (blob["generation"] if version >= 2 else -1)
        assert (message.rack_id or None) == (blob["rack"] if version >= 3 else None)
        held = [(group.topic, group.partitions) for group in message.owned_partitions]
        expected = blob["owned"] if version >= 1 else []
    else:
        message = decode(ConsumerProtocolAssignment, version, raw[2:])
        held = [(group.topic, group.partitions) for group in message.assigned_partitions]
        expected = blob["partitions"]
    # Java lists them in the order of a hash map.
    pairs = sorted((topic, partition) for topic, group in held for partition in group)
    assert pairs == sorted((topic, partition) for topic, partition in expected)
    assert message.user_data == user_data
    assert encode(message, version) == raw[2:]


@functools.cache
def _records() -> dict[int, tuple[type[Message], type[Message]]]:
    """Return the classes of key and value of ``__consumer_offsets`` by record type."""
    # The types of ``__share_group_state`` begin at 0 again.
    of_states = ("ShareSnapshot", "ShareUpdate")
    classes = [
        getattr(messages, name) for name in messages.__all__ if not name.startswith(of_states)
    ]
    plain = [c for c in classes if c.api_key >= 0 and not issubclass(c, (Request, Response))]
    keys = {c.__name__: c for c in plain}
    return {
        c.api_key: (c, keys[name.removesuffix("Key") + "Value"])
        for name, c in keys.items()
        if name.endswith("Key")
    }


@pytest.mark.parametrize(
    "sample",
    load("consumer_offsets_samples.json")["samples"],
    ids=lambda sample: f"{sample['record_type']}-{sample['value_version']}",
)
def test_records_of_consumer_offsets(sample: dict[str, Any]) -> None:
    value = sample["value_b64"]
    check_record(
        sample["key_type"],
        sample,
        base64.b64decode(sample["key_b64"]),
        None if value is None else base64.b64decode(value),
        sample["value_version"],
    )


def check_record(
    kind: int, record: dict[str, Any], raw_key: bytes, raw_value: bytes | None, version: int
) -> None:
    """Check that a record has these bytes, and the fields ``key`` and ``value`` of ``record``."""
    key_class, value_class = _records()[kind]
    assert int.from_bytes(raw_key[:2], "big") == kind
    key = decode(key_class, 0, raw_key[2:])
    assert json_of(key, 0) == record["key"]
    assert encode(key, 0) == raw_key[2:]
    if raw_value is None:
        return
    assert int.from_bytes(raw_value[:2], "big") == version
    value = decode(value_class, version, raw_value[2:])
    assert json_of(value, version) == record["value"]
    assert encode(value, version) == raw_value[2:]


def check_hex_record(record: dict[str, Any], version: int) -> None:
    value = record["value_hex"]
    check_record(
        record["type"],
        record,
        bytes.fromhex(record["key_hex"]),
        None if value is None else bytes.fromhex(value),
        version,
    )


def test_records_of_consumer_groups_encode_to_the_same_bytes() -> None:
    lives = load("consumer_offsets_848.json")["lives"]
    records = [each for life in lives for step in life["steps"] for each in step["records"]]
    assert len(records) == 705
    for record in records:
        check_hex_record(record, record["value_version"])


def test_records_of_share_groups_encode_to_the_same_bytes() -> None:
    records = load("consumer_offsets_share.json")["records"]
    assert len(records) == 338
    for record in records:
        check_hex_record(record, 0)
