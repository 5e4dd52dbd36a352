"""Messages to bytes and back, without headers."""

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
    """A message as a list of buffers; ``records`` and ``bytes`` fields are in it uncopied.

    Raises MessageEncodeError for a version that is not, a field that the version does not have
    and that is set all the same, and a value that does not fit its type.
    """
    parts: list[Buffer] = []
    try:
        encoder(type(message), version)(message, parts.append)
    except _UNWRITABLE as error:
        parts.clear()  # a traceback shows it
        name = type(message).__name__
        failure = MessageEncodeError(f"cannot write {name} version {version}: {error}")
        if not message._has_secrets:
            raise failure from error
    else:
        return parts
    # Without the cause, whose frames have the values of fields.
    raise failure


def encode(message: Message, version: int) -> bytes:
    """A message as bytes; errors as for :func:`encode_parts`."""
    try:
        return b"".join(encode_parts(message, version))
    except TypeError as error:
        name = type(message).__name__
        failure = MessageEncodeError(f"cannot write {name} version {version}: {error}")
        if not message._has_secrets:
            raise failure from error
    raise failure


def decode_from(cls: type[M], version: int, data: Buffer, offset: int) -> tuple[M, int]:
    """Read a message that starts at ``offset``: (message, offset behind it).

    Raises MessageDecodeError for whatever does not decode.
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
    """Read a message that is all of ``data``; bytes left over are a MessageDecodeError."""
    data = memoryview(data)  # unlike bytes, a traceback does not show it
    message, end = decode_from(cls, version, data, 0)
    if end != len(data):
        raise MessageDecodeError(
            f"{cls.__name__} version {version}: {len(data) - end} bytes are left over"
        )
    return message


def _said(error: Exception) -> str:
    """What is wrong with the bytes; Python's own words would say what is wrong with a call."""
    if isinstance(error, (struct.error, IndexError)):
        return "it ends in the midst of a field"
    if isinstance(error, UnicodeDecodeError):
        return "a string in it is not UTF-8"
    return str(error)
