"""Encoding and decoding of messages without headers."""

from __future__ import annotations

import struct
from typing import TypeVar

from kohort.errors import MessageDecodeError, MessageEncodeError
from kohort.protocol._compile import decoder, encoder
from kohort.protocol._struct import Message
from kohort.protocol._types import Buffer

M = TypeVar("M", bound=Message)

_UNREADABLE = (ValueError, IndexError, struct.error)
_UNWRITABLE = (ValueError, TypeError, AttributeError, struct.error)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """Return a message as a list of buffers, without a copy of ``records`` and ``bytes`` fields.

    Raises MessageEncodeError for an unknown version, and for a value that does not fit its type.
    Raises it too for a field that is set but missing in the version.
    """
    parts: list[Buffer] = []
    try:
        encoder(type(message), version)(message, parts.append)
    except _UNWRITABLE as error:
        parts.clear()  # a traceback would show it
        name = type(message).__name__
        failure = MessageEncodeError(f"cannot write {name} version {version}: {error}")
        if not message._has_secrets:
            raise failure from error
    else:
        return parts
    # The cause is left out, because its frames have the values of fields.
    raise failure


def encode(message: Message, version: int) -> bytes:
    """Return a message as bytes. Raises as :func:`encode_parts` does."""
    try:
        return b"".join(encode_parts(message, version))
    except TypeError as error:
        name = type(message).__name__
        failure = MessageEncodeError(f"cannot write {name} version {version}: {error}")
        if not message._has_secrets:
            raise failure from error
    raise failure


def decode_from(cls: type[M], version: int, data: Buffer, offset: int) -> tuple[M, int]:
    """Read the message at ``offset``. Return it and the offset after it.

    Raises MessageDecodeError for bytes that do not decode.
    """
    view = data = memoryview(data)  # unlike bytes, a traceback does not show it
    try:
        message, end = decoder(cls, version)(view, offset, len(view))
    except _UNREADABLE as error:
        raise MessageDecodeError(
            f"cannot read {cls.__name__} version {version}: {_said(error)}"
        ) from error
    if end > len(view):
        raise MessageDecodeError(
            f"cannot read {cls.__name__} version {version}: {end - len(view)} bytes are missing"
        )
    assert isinstance(message, cls)
    return message, end


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """Read a message that fills ``data``. Raises MessageDecodeError for other bytes."""
    data = memoryview(data)  # unlike bytes, a traceback does not show it
    message, end = decode_from(cls, version, data, 0)
    if end != len(data):
        raise MessageDecodeError(
            f"{cls.__name__} version {version}: {len(data) - end} bytes are left over"
        )
    return message


def _said(error: Exception) -> str:
    """Return the fault of the bytes. Python's message describes the fault of a call instead."""
    if isinstance(error, (struct.error, IndexError)):
        return "it ends inside a field"
    if isinstance(error, UnicodeDecodeError):
        return "a string in it is not UTF-8"
    return str(error)
