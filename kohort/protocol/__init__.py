"""Kafka's protocol: codecs between bytes and messages, without I/O, clock and logging.

Messages are in :mod:`kohort.protocol.messages`, one file per API.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.protocol._codec import decode, decode_from, encode, encode_parts
from kohort.protocol._frames import (
    PREFIX_SIZE,
    FrameReader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    frame_size,
)
from kohort.protocol._struct import Message, Request, Response, Struct, VersionRange
from kohort.protocol._types import ZERO_UUID, Buffer
from kohort.types import lazy_names

if TYPE_CHECKING:
    from kohort.protocol._registry import APIS, Api, ApiKey, api

__all__ = [
    "APIS",
    "PREFIX_SIZE",
    "ZERO_UUID",
    "Api",
    "ApiKey",
    "Buffer",
    "FrameReader",
    "Message",
    "Request",
    "Response",
    "Struct",
    "VersionRange",
    "api",
    "decode",
    "decode_from",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_parts",
    "encode_request",
    "encode_response",
    "frame_size",
]

if not TYPE_CHECKING:  # mypy would accept every name
    # A consumer without a group does not need the registry.
    __getattr__, __dir__ = lazy_names(
        __name__, lambda name: "kohort.protocol._registry" if name in __all__ else None
    )
