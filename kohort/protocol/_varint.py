"""Unsigned varints of at most 32 bits, which flexible versions use (KIP-482)."""

from __future__ import annotations

from kohort.protocol._types import Buffer


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """Read the varint at ``at``. Return its value and the offset after it.

    Raises ValueError over 32 bits.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, at
        shift += 7
        if shift > 28:
            break
    raise ValueError("a varint of more than 32 bits")


def uvarint(value: int) -> bytes:
    """Return the bytes of a varint."""
    return _SHORT[value] if value < len(_SHORT) else _encode(value)


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = [bytes((value,)) for value in range(0x80)]
