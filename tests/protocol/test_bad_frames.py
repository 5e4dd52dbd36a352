"""Wrong lengths and mutated frames: a typed error, and no memory allocated for them."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from kohort.errors import MessageDecodeError
from kohort.protocol import api, decode, decode_request, decode_response, encode
from kohort.protocol._varint import uvarint
from kohort.protocol.messages import (
    ApiVersionsRequest,
    FetchResponse,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
)
from tests.protocol._data import Golden, golden_frames
from tests.support.mutation import LIES, mutate
from tests.support.undisturbed import least, peak

ALLOWED = 64
"""Bytes of objects for one byte of a frame. An empty structure is the worst case."""


def _decode(golden: Golden, frame: bytes) -> None:
    if golden.is_request:
        decode_request(frame)
    else:
        decode_response(api(golden.api_key).response, golden.version, frame)


def _some_frames() -> list[Golden]:
    """Return one request and one response of each API that a consumer needs."""
    chosen = {}
    for golden in golden_frames():
        if golden.api_key in (0, 1, 3, 8, 9, 11, 14, 18, 68) and len(golden.frame) < 2000:
            # ApiVersions responses are long and similar to each other.
            chosen[golden.api_key, golden.is_request, golden.api_key != 18 and golden.version] = (
                golden
            )
    return list(chosen.values())


@pytest.mark.cases(18)  # each measures memory
@pytest.mark.parametrize("golden", _some_frames(), ids=lambda golden: str(golden[0]))
def test_a_length_that_lies_costs_no_memory(golden: Golden) -> None:
    _decode(golden, golden.frame)  # compiles the codec
    start = 8 if golden.is_request else 4
    refused = 0
    frame = b""

    def decode_lie() -> None:
        nonlocal refused
        try:
            _decode(golden, frame)
        except MessageDecodeError:
            refused += 1

    tracemalloc.start()
    try:
        for at in range(start, len(golden.frame)):
            for lie in LIES:
                frame = golden.frame[:at] + lie + golden.frame[at + len(lie) :]
                allowed = 20_000 + ALLOWED * len(frame)
                assert least(lambda: peak(decode_lie), allowed) <= allowed
    finally:
        tracemalloc.stop()
    assert refused > 0


@pytest.mark.parametrize("version", [4, 12])
def test_a_count_is_held_against_the_least_size_of_its_elements(version: int) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="") for _ in range(1000)]
    data = bytearray(encode(MetadataRequest(topics=topics), version))
    count = b"\x00\x00\x03\xe8" if version == 4 else b"\xe9\x07"
    lie = b"\x00\x00\x07\xff" if version == 4 else b"\xff\x0f"
    assert data.startswith(count)
    data[: len(count)] = lie
    with pytest.raises(MessageDecodeError, match=r"topics: a length of 204\d where"):
        decode(MetadataRequest, version, data)


@pytest.mark.parametrize("cut", range(60))
def test_a_frame_that_ends_early_is_an_error(cut: int) -> None:
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)
    for version in (0, 5, 9, 13):
        data = encode(MetadataResponse(brokers=[broker]), version)
        if cut < len(data):
            with pytest.raises(MessageDecodeError):
                decode(MetadataResponse, version, data[:cut])


def test_records_that_would_reach_beyond_the_frame_are_an_error() -> None:
    part = FetchResponse.PartitionData(records=b"r" * 10)
    message = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[part])])
    data = encode(message, 11)
    assert data.count(b"\x00\x00\x00\x0arrrrrrrrrr") == 1
    for length in (11, 0x7FFFFFFF):
        lie = data.replace(b"\x00\x00\x00\x0arr", struct.pack(">i", length) + b"rr")
        with pytest.raises(MessageDecodeError, match=f"records: a length of {length} where 10"):
            decode(FetchResponse, 11, lie)


@pytest.mark.parametrize("varint", [b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x7f", b"\x80" * 200])
def test_a_varint_of_more_than_32_bits_is_an_error(varint: bytes) -> None:
    with pytest.raises(MessageDecodeError, match="a varint of more than 32 bits"):
        decode(FindCoordinatorRequest, 3, varint)


@pytest.mark.parametrize("seed", range(10))
def test_a_mutated_frame_decodes_or_is_a_decode_error(seed: int) -> None:
    rng = random.Random(seed)
    frames = golden_frames()
    refused = 0
    for _ in range(500):
        golden = rng.choice(frames)
        frame = mutate(golden.frame, rng)
        try:
            _decode(golden, frame)
        except MessageDecodeError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_a_decode_error(seed: int) -> None:
    rng = random.Random(seed)
    for golden in golden_frames()[:: rng.randrange(3, 7)]:
        noise = golden.frame[:8] + rng.randbytes(rng.randrange(200))
        try:
            _decode(golden, noise)
        except MessageDecodeError:
            continue


def test_an_array_of_more_than_a_million_elements_is_refused() -> None:
    for count in (1_000_000, 1_000_001):
        body = b"\0\1g\0\0\0\1\0\1t" + struct.pack(">i", count) + bytes(4 * count)
        if count > 1_000_000:
            with pytest.raises(MessageDecodeError, match="a count of 1000001"):
                decode(OffsetFetchRequest, 1, body)
        else:
            topics = decode(OffsetFetchRequest, 1, body).topics
            assert topics is not None and len(topics[0].partition_indexes) == count


@pytest.mark.parametrize("version", [3, 4])
def test_more_than_10_000_tagged_fields_are_refused(version: int) -> None:
    tags = b"".join(b"\xff\x7f\x00" for _ in range(10_001))
    for count in (10_000, 10_001):
        body = b"\x02a\x02b" + uvarint(count) + tags[: 3 * count]
        if count > 10_000:
            with pytest.raises(MessageDecodeError, match="a count of 10001"):
                decode(ApiVersionsRequest, version, body)
        else:
            decode(ApiVersionsRequest, version, body)
