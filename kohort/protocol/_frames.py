"""Frames: a length prefix, a header, and a request or response. No I/O."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeVar

from kohort.errors import FrameTooLargeError, MessageDecodeError
from kohort.protocol import messages
from kohort.protocol._codec import decode_from, encode_parts
from kohort.protocol._struct import Message, Request, Response
from kohort.protocol._types import Buffer

R = TypeVar("R", bound=Response)

PREFIX_SIZE = 4
_PREFIX = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
_REQUEST_START = struct.Struct(">ihhi")
"""The length prefix and the part of the header that is the same in both of its versions."""
_CORRELATION_ID = struct.Struct(">i")
_JOINED = 16 << 10
"""Bytes of the largest request that is one buffer. A copy costs less than many buffers."""

TLS_RECORD_TYPES = range(0x14, 0x18)


def request_header_version(cls: type[Message], version: int) -> int:
    """Return 2 for flexible versions, else 1. Version 0 has no client id and is obsolete."""
    return 2 if version in cls.flexible else 1


def response_header_version(cls: type[Message], version: int) -> int:
    """Return 1 for flexible versions, else 0. ApiVersions has 0, so that any client reads it."""
    return 1 if version in cls.flexible and cls is not messages.ApiVersionsResponse else 0


_OTHERS = {
    b"HTTP": "HTTP",
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"SSH-": "SSH",
    b"E\0\0\0": "PostgreSQL",  # an error message of fewer than 256 bytes
    b"-ERR": "Redis",
}
"""Other protocols by the first four bytes of what their servers send."""


def frame_size(prefix: Buffer, max_size: int) -> int:
    """Return the length in bytes that a prefix of 4 bytes announces.

    Raises FrameTooLargeError if it is negative or over ``max_size``. The error names another
    protocol if the bytes look like it.
    """
    size: int = _PREFIX.unpack_from(prefix)[0]
    if 0 <= size <= max_size:
        return size
    first = bytes(prefix[:4])
    hint = ""
    if first[0] in TLS_RECORD_TYPES and first[1] == 3:
        hint = "; it looks like TLS: is this a TLS port?"
    elif first in _OTHERS:
        hint = f"; it looks like {_OTHERS[first]}: is this the port of a Kafka broker?"
    raise FrameTooLargeError(
        f"a frame of {size} bytes was announced, the bound is {max_size} bytes{hint}"
    )


def _frame(parts: list[Buffer]) -> list[Buffer]:
    size = 0
    for part in parts:
        size += len(part)
    parts.insert(0, _PREFIX.pack(size))
    return parts


def encode_request(
    message: Request[Response], version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Return a whole frame, with its length prefix, as buffers in order."""
    rest = _rest_of_header(client_id, request_header_version(type(message), version))
    parts = encode_parts(message, version)
    size = _REQUEST_START.size - PREFIX_SIZE + len(rest)
    for part in parts:
        size += len(part)
    start = _REQUEST_START.pack(size, message.api_key, version, correlation_id) + rest
    return [b"".join((start, *parts))] if size <= _JOINED else [start, *parts]


@lru_cache(maxsize=256)
def _rest_of_header(client_id: str | None, header_version: int) -> bytes:
    """Return the bytes after the correlation id in the header of a request."""
    header = messages.RequestHeader(client_id=client_id)
    start = _REQUEST_START.size - PREFIX_SIZE
    return b"".join(encode_parts(header, header_version))[start:]


def decode_request_header(frame: Buffer) -> messages.RequestHeader:
    """Return the header of a request, even if its API or version is not known."""
    if len(frame) < 8:
        raise MessageDecodeError(f"a request of {len(frame)} bytes is too short for a header")
    # The flexible header only appends tagged fields, so the old form reads both.
    header, _ = decode_from(messages.RequestHeader, 1, frame, 0)
    return header


def decode_request(frame: Buffer) -> tuple[messages.RequestHeader, Request[Response]]:
    """Return the header and the message of a request frame without its length prefix.

    Raises MessageDecodeError, also for an API or version without a message in kohort.
    """
    if len(frame) < 8:
        raise MessageDecodeError(f"a request of {len(frame)} bytes is too short for a header")
    from kohort.protocol._registry import APIS  # only servers read requests

    frame = memoryview(frame)  # unlike bytes, a traceback does not show it
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    known = APIS.get(key)
    if known is None or version not in known.versions:
        raise MessageDecodeError(f"no message for API key {key}, version {version}")
    header_version = request_header_version(known.request, version)
    header, offset = decode_from(messages.RequestHeader, header_version, frame, 0)
    message, end = decode_from(known.request, version, frame, offset)
    _check_end(known.request, version, frame, end)
    return header, message


def encode_response(message: Response, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole frame, with its length prefix, as buffers in order."""
    header = messages.ResponseHeader(correlation_id=correlation_id)
    parts = encode_parts(header, response_header_version(type(message), version))
    return _frame(parts + encode_parts(message, version))


def decode_response(cls: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """Return the correlation id and the message of a response frame without length prefix."""
    frame = memoryview(frame)  # unlike bytes, a traceback does not show it
    header_version = response_header_version(cls, version)
    offset = PREFIX_SIZE + header_version
    if len(frame) >= offset and not (header_version and frame[PREFIX_SIZE]):
        correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
    else:
        header, offset = decode_from(messages.ResponseHeader, header_version, frame, 0)
        correlation_id = header.correlation_id
    message, end = decode_from(cls, version, frame, offset)
    _check_end(cls, version, frame, end)
    return correlation_id, message


def _check_end(cls: type[Message], version: int, frame: Buffer, end: int) -> None:
    if end != len(frame):
        raise MessageDecodeError(
            f"{cls.__name__} version {version}: {len(frame) - end} bytes are left over"
        )


class FrameReader:
    """Splitter of a stream of bytes into frames, for a peer that chooses its buffers."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffered = bytearray()

    def feed(self, data: Buffer) -> list[bytes]:
        """Add received bytes. Return the complete frames without their prefixes.

        Raises FrameTooLargeError as soon as a prefix shows it. No more can be read then.
        """
        buffered = self._buffered
        buffered += data
        frames: list[bytes] = []
        start = 0
        while len(buffered) - start >= PREFIX_SIZE:
            size = frame_size(buffered[start : start + PREFIX_SIZE], self._max_size)
            end = start + PREFIX_SIZE + size
            if len(buffered) < end:
                break
            frames.append(bytes(buffered[start + PREFIX_SIZE : end]))
            start = end
        if start:
            del buffered[:start]
        return frames

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffered)
