"""Reader of the headers and blocks of LZ4 frames.

::

    magic  flags:1  blockSizes:1  [contentSize:8]  headerChecksum:1
    (blockSize:4  block  [blockChecksum:4])*  0:4  [contentChecksum:4]

All numbers are little-endian. The highest bit of a block's size marks an uncompressed block.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import TypeAlias

from kohort.errors import CorruptBatchError
from kohort.records._compiled import compiled_module
from kohort.types import NamedTuple

SOURCES = ("_lz4_c.pyx", "lz4.c", "lz4.h")
"""Files of the compiled module. The last two are those of LZ4 1.10.0, as they are."""
MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_AT, _CONTENT_SIZE_AT = 4, 6
_VERSION, _VERSION_1 = 0xC0, 0x40
_INDEPENDENT, _BLOCK_CHECKSUM, _SIZED, _CONTENT_CHECKSUM, _RESERVED, _DICTIONARY = (
    32,
    16,
    8,
    4,
    2,
    1,
)
_STORED = 0x8000_0000
BLOCK_SIZE = 64 * 1024
_BLOCK_64_KB = 0x40
_RATIO = 256
"""Largest ratio, because a sequence makes at most 255 bytes of each byte of its length."""
_LIKELY_RATIO = 8
_BLOCKS_MAX = 1 << 17
"""Most blocks that are read one by one. Those of producers have at least 64 KiB each."""


Block: TypeAlias = tuple[int, int, bool, int]
"""Start and end of a block, True if it is uncompressed, and its largest decompressed size."""

_UINT32 = struct.Struct("<I")


class Lz4Frame(NamedTuple):
    """The header of a frame.

    ``size`` is the size of the content, or None if the frame does not have it. ``header_end`` is
    the position after the header's checksum. ``plain`` is True if no block refers to others and
    there is no other checksum.
    """

    size: int | None
    header_end: int
    header_checksum_is_right: bool
    plain: bool
    block_checksums: bool
    content_checksum: bool
    block_max: int


def read_frame(data: memoryview) -> Lz4Frame:
    """Return the header of the frame in ``data``."""
    if len(data) < 7:
        raise broken("it ends too early")
    return _frame(bytes(data[: 15 if data[_FLAGS_AT] & _SIZED else 7]))


@functools.lru_cache(maxsize=64)
def _frame(header: bytes) -> Lz4Frame:
    """Return the parsed header. It is cached, because most producers repeat one header."""
    if header[:4] != MAGIC:
        raise broken("the data does not start with an LZ4 frame")
    flags, sizes = header[_FLAGS_AT], header[_FLAGS_AT + 1]
    if flags & _VERSION != _VERSION_1 or flags & _RESERVED or sizes & 0x8F or sizes < 0x40:
        raise broken("a header that cannot be")
    if flags & _DICTIONARY:
        raise broken("it needs a dictionary")
    sized = flags & _SIZED != 0
    if sized and len(header) < 15:
        raise broken("it ends too early")
    return Lz4Frame(
        int.from_bytes(header[_CONTENT_SIZE_AT:14], "little") if sized else None,
        len(header),
        header_checksum(header[_FLAGS_AT:-1]) == header[-1],
        flags & (_INDEPENDENT | _BLOCK_CHECKSUM | _CONTENT_CHECKSUM) == _INDEPENDENT,
        flags & _BLOCK_CHECKSUM != 0,
        flags & _CONTENT_CHECKSUM != 0,
        1 << (8 + 2 * (sizes >> 4)),
    )


def read_blocks(data: memoryview, frame: Lz4Frame) -> list[Block] | None:
    """Return the blocks of the frame, which fills ``data``, or None if there are too many."""
    blocks: list[Block] = []
    block_max = frame.block_max
    trailer = 4 if frame.block_checksums else 0
    start, left = frame.header_end + 4, len(data)
    while start <= left:
        (number,) = _UINT32.unpack_from(data, start - 4)
        if not number:
            start += 4 if frame.content_checksum else 0
            if start > left:
                break
            if start < left:
                raise broken("bytes follow the frame")
            return blocks if len(blocks) <= _BLOCKS_MAX else None
        length = number & ~_STORED
        if length > block_max:
            raise broken("a block that cannot be")
        end = start + length
        if len(blocks) > _BLOCKS_MAX:
            pass  # the decoder reads to the end of the frame alone, which must be the end of data
        elif number != length:
            blocks.append((start, end, True, length))
        else:
            blocks.append((start, end, False, min(block_max, _RATIO * length)))
        start = end + trailer + 4
    raise broken("it ends too early")


def with_small_blocks(
    data: memoryview, frame: Lz4Frame, blocks: list[Block]
) -> list[bytes | memoryview]:
    """Return frames to try in turn. The last one always has the content of this frame.

    Before the first block, the decoder allocates two blocks of the size in the header, which is up
    to 4 MiB. The headers of the returned frames have smaller sizes. The first is the likely size of
    the blocks, and the second their largest possible size.
    """
    frames: list[bytes | memoryview] = []
    for ratio in (_LIKELY_RATIO, _RATIO):
        largest = max(
            (end - start if stored else min(most, ratio * (end - start)))
            for start, end, stored, most in [*blocks, (0, 0, True, 0)]
        )
        code = next(code for code in range(4, 8) if 1 << (8 + 2 * code) >= largest)
        if 1 << (8 + 2 * code) >= frame.block_max:
            return [*frames, data]
        fixed = bytearray(data)
        fixed[_FLAGS_AT + 1] = code << 4
        at = frame.header_end - 1
        fixed[at] = header_checksum(bytes(fixed[_FLAGS_AT:at]))
        frames.append(bytes(fixed))
    return frames


def header_checksum(descriptor: bytes) -> int:
    """Return the checksum of a header's fields, which is a byte of their xxHash32."""
    total = 0x165667B1 + len(descriptor)  # seed 0
    whole = len(descriptor) & ~3  # from 16 bytes on the algorithm has more steps
    for at in range(0, whole, 4):
        total += int.from_bytes(descriptor[at : at + 4], "little") * 0xC2B2AE3D
        total = _rotated(total, 17) * 0x27D4EB2F
    for byte in descriptor[whole:]:
        total = _rotated(total + byte * 0x165667B1, 11) * 0x9E3779B1
    total &= 0xFFFF_FFFF
    total = (total ^ total >> 15) * 0x85EBCA77 & 0xFFFF_FFFF
    total = (total ^ total >> 13) * 0xC2B2AE3D & 0xFFFF_FFFF
    return (total ^ total >> 16) >> 8 & 0xFF


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFF_FFFF
    return number << bits & 0xFFFF_FFFF | number >> 32 - bits


def independent_frame(blocks: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a frame of independent blocks without checksums, as Java's producer writes it.

    Each block is given uncompressed, with at most ``BLOCK_SIZE`` bytes, and compressed.
    """
    descriptor = bytes([_VERSION_1 | _INDEPENDENT, _BLOCK_64_KB])
    frame = [MAGIC, descriptor, bytes([header_checksum(descriptor)])]
    for plain, packed in blocks:
        if len(packed) < len(plain):
            frame += (len(packed).to_bytes(4, "little"), packed)
        else:
            frame += ((len(plain) | _STORED).to_bytes(4, "little"), plain)
    return b"".join([*frame, bytes(4)])


def broken(why: str) -> CorruptBatchError:
    """Return the error for a corrupt frame."""
    return CorruptBatchError(f"does not decompress as lz4: {why}")


@functools.cache
def decompressor_address() -> int:
    """Return the address of LZ4_decompress_safe() in the compiled module, or 0 without it."""
    compiled = compiled_module("_lz4_c", "kohort.records.codecs", SOURCES)
    return 0 if compiled is None else int(compiled.decompressor_address())
