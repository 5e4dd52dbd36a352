"""How much a zstd stream can decompress to, told from its frame and block headers (RFC 8878)."""

from __future__ import annotations

from kohort.errors import CorruptBatchError

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_BLOCK_MAX = 128 * 1024
_RLE, _COMPRESSED = 1, 2
_BLOCKS_MAX = 1 << 16
"""So many blocks are counted one by one."""


def zstd_bound(data: bytes | bytearray | memoryview, limit: int) -> tuple[int, bool]:
    """An upper bound of the decompressed bytes, and whether so many there really are.

    Counting stops as soon as it is over ``limit``. A content size in a frame's header can only
    raise the bound: the decoder compares it no sooner than at the frame's end. Of very many blocks
    nothing is told but that they may be more than ``limit``.
    """
    try:
        return _bound(data, limit)
    except IndexError:
        raise _broken("it ends too early") from None


def _bound(data: bytes | bytearray | memoryview, limit: int) -> tuple[int, bool]:
    total = blocks = 0
    exact = True
    pos, end = 0, len(data)
    while pos < end:
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
        last = 0
        while not last:
            block = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
            pos += 3
            last = block & 1
            kind, length = block >> 1 & 3, block >> 3
            if kind > _COMPRESSED or length > _BLOCK_MAX:
                raise _broken("a block that cannot be")
            pos += 1 if kind == _RLE else length
            if kind == _COMPRESSED:
                exact = False
                length = _BLOCK_MAX
            total += length
            if total > limit:
                return total, exact
            blocks += 1
            if blocks > _BLOCKS_MAX:
                return limit + 1, False
        pos += 4 if checksum else 0
    if pos != end:
        raise IndexError
    return total, exact


def _frame_header(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int, bool]:
    """(position of the first block, stated content size or 0, whether a checksum follows)."""
    flags = data[pos]
    single_segment = flags & 0x20 != 0
    pos += 1 if single_segment else 2
    pos += (0, 1, 2, 4)[flags & 3]
    width = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    stated = _number(data, pos, width) + (256 if width == 2 else 0) if width else 0
    return pos + width, stated, flags & 4 != 0


def _number(data: bytes | bytearray | memoryview, pos: int, width: int) -> int:
    if pos + width > len(data):
        raise IndexError
    return int.from_bytes(data[pos : pos + width], "little")


def _broken(why: str) -> CorruptBatchError:
    return CorruptBatchError(f"does not decompress as zstd: {why}")
