"""Length prefixes, fragments, headers."""

from __future__ import annotations

import pytest

from kohort.errors import FrameTooLargeError, MessageDecodeError
from kohort.protocol import (
    ApiKey,
    FrameReader,
    Request,
    Response,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    frame_size,
)
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetDeleteRequest,
    SaslHandshakeRequest,
)

FRAMES = [b"", b"a", b"hello", bytes(range(256)) * 3]
STREAM = b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 16, 255, 256, 1000, len(STREAM)])
def test_frames_come_whole_from_fragments_of_any_size(size: int) -> None:
    reader = FrameReader(1000)
    got = []
    for at in range(0, len(STREAM), size):
        got += reader.feed(STREAM[at : at + size])
    assert got == FRAMES
    assert reader.pending == 0


def test_a_stream_may_be_cut_anywhere() -> None:
    for cut in range(len(STREAM) + 1):
        reader = FrameReader(1000)
        first = reader.feed(memoryview(STREAM)[:cut])
        assert first + reader.feed(bytearray(STREAM[cut:])) == FRAMES


def test_what_is_not_whole_is_pending() -> None:
    reader = FrameReader(1000)
    assert reader.feed(b"\0\0\0\5hel") == []
    assert reader.pending == 7
    assert reader.feed(b"lo\0") == [b"hello"]
    assert reader.pending == 1


def test_a_frame_of_exactly_the_bound_passes() -> None:
    assert FrameReader(3).feed(b"\0\0\0\3abc") == [b"abc"]
    assert frame_size(b"\0\0\0\0", 0) == 0


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (b"\0\0\4\1", "a frame of 1025 bytes was announced, the bound is 1024 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes was announced"),
        (b"\x80\0\0\0", "a frame of -2147483648 bytes was announced"),
        (b"\x15\x03\x03\0", "is this a TLS port?"),
        (b"\x16\x03\x01\2", "is this a TLS port?"),
        (b"HTTP", "it looks like HTTP"),
        (b"GET ", "it looks like HTTP"),
        (b"SSH-", "it looks like SSH"),
    ],
)
def test_a_bad_length_is_refused_with_a_guess_at_what_it_is(prefix: bytes, said: str) -> None:
    with pytest.raises(FrameTooLargeError) as caught:
        frame_size(prefix, 1024)
    assert said in str(caught.value)
    reader = FrameReader(1024)
    assert reader.feed(prefix[:3]) == []
    with pytest.raises(FrameTooLargeError):
        reader.feed(prefix[3:])


def _frame(parts: list[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(parts)[4:]


def test_the_client_id_keeps_its_old_form_in_the_flexible_header() -> None:
    old = _frame(encode_request(HeartbeatRequest(), 3, 7, "me"))
    assert old.startswith(b"\0\x0c\0\3\0\0\0\7\0\2me\0\0")
    flexible = _frame(encode_request(HeartbeatRequest(), 4, 7, "me"))
    assert flexible.startswith(b"\0\x0c\0\4\0\0\0\7\0\2me\0\1")
    nameless = _frame(encode_request(HeartbeatRequest(), 4, 7, None))
    assert nameless.startswith(b"\0\x0c\0\4\0\0\0\7\xff\xff\0\1")
    assert decode_request(nameless)[0].client_id is None


def test_api_versions_response_has_old_header_in_every_version() -> None:
    for version in range(5):
        frame = _frame(encode_response(ApiVersionsResponse(error_code=3), version, 9))
        assert frame.startswith(b"\0\0\0\x09\0\3")
        assert decode_response(ApiVersionsResponse, version, frame)[0] == 9
    assert _frame(encode_response(HeartbeatResponse(error_code=3), 4, 9)).startswith(
        b"\0\0\0\x09\0\0\0\0\0\0\3"
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 0),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (OffsetDeleteRequest(group_id="g"), 0),
        (ConsumerGroupHeartbeatRequest(group_id="g"), 0),
        (ApiVersionsRequest(), 0),
        (ApiVersionsRequest(), 3),
    ],
)
def test_a_request_comes_back_with_its_header(message: Request[Response], version: int) -> None:
    frame = _frame(encode_request(message, version, -5, "client"))
    header, again = decode_request(frame)
    assert again == message
    assert header == decode_request_header(frame)
    assert (header.request_api_key, header.request_api_version) == (message.api_key, version)
    assert (header.correlation_id, header.client_id) == (-5, "client")


def test_the_header_of_an_unknown_api_or_version_can_be_read() -> None:
    for key, version in ((999, 0), (ApiKey.HEARTBEAT, 99), (ApiKey.API_VERSIONS, 6)):
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\2me\0rest"
        header = decode_request_header(frame)
        assert (header.request_api_key, header.request_api_version) == (key, version)
        assert (header.correlation_id, header.client_id) == (1, "me")
        with pytest.raises(MessageDecodeError, match=f"no message for API key {int(key)}, version"):
            decode_request(frame)


@pytest.mark.parametrize("size", range(8))
def test_a_request_too_short_for_a_header_is_an_error(size: int) -> None:
    for read in (decode_request, decode_request_header):
        with pytest.raises(MessageDecodeError, match="too short for a header"):
            read(b"\0\x0c\0\0\0\0\0\1"[:size])


def test_bytes_behind_the_message_are_an_error() -> None:
    request = _frame(encode_request(HeartbeatRequest(), 0, 1, ""))
    with pytest.raises(MessageDecodeError, match="1 bytes are left over"):
        decode_request(request + b"\0")
    response = _frame(encode_response(HeartbeatResponse(), 0, 1))
    with pytest.raises(MessageDecodeError, match="1 bytes are left over"):
        decode_response(HeartbeatResponse, 0, response + b"\0")
