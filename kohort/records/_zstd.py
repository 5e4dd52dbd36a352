"""How much a zstd stream can decompress to, told from its frame and block headers (RFC 8878)."""

from __future__ import annotations

from kohort.errors import CorruptBatchError

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_BLOCK_MAX = 128 * 1024
_RLE, _COMPRESSED = 1, 2


def zstd_bound(data: bytes | bytearray | memoryview, limit: int) -> tuple[int, bool]:
    """An upper bound of the decompressed bytes, and whether so many there really are.

    Counting stops as soon as it is over ``limit``. A content size in a frame's header can only
    raise the bound: the decoder compares it no sooner than at the frame's end.
    """
    total = 0
    exact = True
    pos = 0
    while pos < len(data):
        magic = _number(data, pos, 4)
        pos += 4
        if magic & ~0xF == _SKIPPABLE:
            pos += 4 + _number(data, pos, 4)
            continue
        if magic != _MAGIC:
            raise _broken("no frame where one should start")
        pos, stated, checksum = _frame_header(data, pos)
        if stated > limit:
            return stated, True
        last = False
        while not last:
            block = _number(data, pos, 3)
            pos += 3
            last = block & 1 == 1
            kind, length = block >> 1 & 3, block >> 3
            if kind > _COMPRESSED or length > _BLOCK_MAX:
                raise _broken("a block that cannot be")
            pos += 1 if kind == _RLE else length
            total += _BLOCK_MAX if kind == _COMPRESSED else length
            exact = exact and kind != _COMPRESSED
            if total > limit:
                return total, exact
        pos += 4 if checksum else 0
    if pos != len(data):
        raise _broken("it ends too early")
    return total, exact


def _frame_header(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int, bool]:
    """(position of the first block, stated content size or 0, whether a checksum follows)."""
    flags = _number(data, pos, 1)
    single_segment = flags & 0x20 != 0
    pos += 1 if single_segment else 2
    pos += (0, 1, 2, 4)[flags & 3]
    width = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    stated = _number(data, pos, width) + (256 if width == 2 else 0)
    return pos + width, stated, flags & 4 != 0


def _number(data: bytes | bytearray | memoryview, pos: int, width: int) -> int:
    if pos + width > len(data):
        raise _broken("it ends too early")
    return int.from_bytes(data[pos : pos + width], "little")


def _broken(why: str) -> CorruptBatchError:
    return CorruptBatchError(f"does not decompress as zstd: {why}")
