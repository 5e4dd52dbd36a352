"""Damage to stored batches, of the kinds that disks, networks and broken producers cause."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kohort.errors import InvalidOptionError
from kohort.records import HEADER_SIZE, crc32c

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT = 8, 16, 17, 21

_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")


def _seal(batch: memoryview) -> None:
    """Make the CRC match the damaged bytes, so that only decoding the records fails."""
    _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))


def _crc(batch: memoryview) -> None:
    batch[CRC_AT] ^= 0xFF


def _flip(batch: memoryview) -> None:
    batch[len(batch) - 1] ^= 0x01


def _records(batch: memoryview) -> None:
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    _seal(batch)


def _length(batch: memoryview) -> None:
    _INT32.pack_into(batch, LENGTH_AT, 1)


def _oversize(batch: memoryview) -> None:
    _INT32.pack_into(batch, LENGTH_AT, 0x7FFF_FFFF)


def _magic(batch: memoryview) -> None:
    batch[MAGIC_AT] = 9


def _codec(batch: memoryview) -> None:
    batch[ATTRIBUTES_AT + 1] |= 0x07
    _seal(batch)


DAMAGES: dict[str, Callable[[memoryview], None]] = {
    "crc": _crc,
    "flip": _flip,
    "records": _records,
    "length": _length,
    "oversize": _oversize,
    "magic": _magic,
    "codec": _codec,
}


def damage(batch: memoryview, how: str) -> Callable[[], None]:
    """Damage a stored batch in place, and return the function that repairs it."""
    if how not in DAMAGES:
        raise InvalidOptionError(f"how={how!r}: choose one of {', '.join(DAMAGES)}")
    sound = bytes(batch)
    DAMAGES[how](batch)

    def repair() -> None:
        batch[:] = sound

    return repair
