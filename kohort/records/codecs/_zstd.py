"""Largest decompressed size of a zstd stream, from its frame and block headers (RFC 8878)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from kohort.errors import CorruptBatchError
from kohort.types import NamedTuple

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_BLOCK_MAX = 128 * 1024
_RLE, _COMPRESSED = 1, 2
_SINGLE_SEGMENT = 0x20
_LARGEST_WINDOW = 17 << 3
"""Descriptor of 128 MiB, the largest window that decoders accept by default."""
_SMALLEST_WINDOW = 7 << 3
"""Descriptor of 128 KiB, the smallest window that ``_unpack.h`` accepts."""
_VERSION_MIN = 1_04_00
_BLOCKS_MAX = 1 << 16
"""Most blocks that are counted one by one."""


class SizeBound(NamedTuple):
    """The bound of a stream.

    ``most`` is its largest decompressed size. ``exact`` is True if that is the exact size.
    ``frames`` has the position of each frame after its magic.
    """

    most: int
    exact: bool
    frames: list[int]


def zstd_bound(data: bytes | bytearray | memoryview, limit: int) -> SizeBound:
    """Return an upper bound of the decompressed bytes.

    Bytes over ``limit`` are not counted exactly. A content size in a frame's header can only raise
    the bound, because the decoder checks it at the end of the frame. For too many blocks the bound
    is only known to be over ``limit``.
    """
    try:
        return _bound(data, limit)
    except IndexError:
        raise _broken("it ends too early") from None


def with_small_windows(
    data: bytes | bytearray | memoryview, frames: Sequence[int], size: int
) -> bytes | bytearray | memoryview:
    """Return the data with smaller windows, for a decoder that stops at ``size``.

    The decoder allocates the window at the start of a frame, or the content if there is no window.
    Both sizes are unverified and may be 128 MiB in one byte.
    """
    small = _window_of(
        size + _BLOCK_MAX
    )  # so that it reaches the size, and finds that there is more
    large = [at for at in frames if _claims_more(data, at, small)]
    if not large:
        return data
    fixed = bytearray(data)
    for at in reversed(large):
        if fixed[at] & _SINGLE_SEGMENT:
            fixed[at] ^= _SINGLE_SEGMENT
            fixed.insert(at + 1, small)
        else:
            fixed[at + 1] = small
    return fixed


def _claims_more(data: bytes | bytearray | memoryview, at: int, window: int) -> bool:
    if data[at] & _SINGLE_SEGMENT:
        # A one-byte size is below 256, and its frame has no place for a window.
        return data[at] >> 6 != 0 and _frame_header(data, at)[1] > _size_of(window)
    return window < data[at + 1] <= _LARGEST_WINDOW


def _window_of(size: int) -> int:
    """Return the descriptor of the smallest window of at least ``size``."""
    exponent = max((size - 1).bit_length() - 1, 10)
    eighths = -(-((size - (1 << exponent)) << 3) >> exponent)
    return (exponent - 10 << 3) + max(eighths, 0)


def _size_of(window: int) -> int:
    base = 1 << (10 + (window >> 3))
    return base + (base >> 3) * (window & 7)


def _bound(data: bytes | bytearray | memoryview, limit: int) -> SizeBound:
    total = blocks = 0
    exact = True
    frames: list[int] = []
    pos, end = 0, len(data)
    while pos < end:
        magic = _number(data, pos, 4)
        pos += 4
        if magic & ~0xF == _SKIPPABLE:
            pos += 4 + _number(data, pos, 4)
            continue
        if magic != _MAGIC:
            raise _broken("the data does not start with a zstd frame")
        frames.append(pos)
        pos, stated, checksum = _frame_header(data, pos)
        if stated > limit:
            return SizeBound(stated, True, frames)
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
            if total > limit and exact:
                return SizeBound(total, True, frames)
            blocks += 1
            if blocks > _BLOCKS_MAX:
                return SizeBound(limit + 1, False, frames)
        pos += 4 if checksum else 0
    if pos != end:
        raise IndexError
    return SizeBound(total, exact, frames)


def _frame_header(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int, bool]:
    """Return the position of the first block, the content size or 0, and a checksum flag."""
    flags = data[pos]
    single_segment = flags & _SINGLE_SEGMENT != 0
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


class ZstdFunctions(NamedTuple):
    """Addresses of libzstd's C functions, or 0 without the library."""

    decompress: int = 0
    create_context: int = 0
    free_context: int = 0


@functools.cache
def decompressor_addresses() -> ZstdFunctions:
    """Return the addresses in the system's libzstd, if there is one of version 1.4 or later.

    cramjam, which is always there, does not export these functions.
    """
    if sys.platform == "win32":
        return ZstdFunctions()
    try:
        import ctypes  # only now, as in _compression.py

        library = ctypes.CDLL("libzstd.1.dylib" if sys.platform == "darwin" else "libzstd.so.1")
        if library.ZSTD_versionNumber() < _VERSION_MIN:
            return ZstdFunctions()
        functions = (
            library.ZSTD_decompressDCtx,
            library.ZSTD_createDCtx,
            library.ZSTD_freeDCtx,
        )
    except (ImportError, OSError, AttributeError):
        return ZstdFunctions()
    return ZstdFunctions(*(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions))


def decompress_with_libzstd(
    data: memoryview, frames: Sequence[int], target: bytearray | memoryview
) -> int:
    """Decompress into ``target``. Return the size, or -1 if the system's libzstd refuses it.

    Versions of libzstd differ in the corrupt frames that they refuse. Tables use the system's
    libzstd, so it also decides here.
    """
    functions = decompressor_addresses()
    if not functions.decompress or not len(target):
        return -1
    for at in frames:
        if not data[at] & _SINGLE_SEGMENT and data[at + 1] < _SMALLEST_WINDOW:
            return -1
    import ctypes

    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    create = ctypes.CFUNCTYPE(pointer)(functions.create_context)
    decompress = ctypes.CFUNCTYPE(size, pointer, pointer, size, pointer, size)(functions.decompress)
    free = ctypes.CFUNCTYPE(size, pointer)(functions.free_context)
    context = create()
    if not context:
        return -1
    try:
        source = bytes(data)
        into = (ctypes.c_char * len(target)).from_buffer(target)
        made = int(decompress(context, ctypes.addressof(into), len(into), source, len(source)))
    finally:
        free(context)
    return made if made <= len(target) else -1
