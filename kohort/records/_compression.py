"""Compression codecs, under a budget of bytes that is checked before memory is taken.

What an honest broker sends is small; the sizes written in frames are claims. Each codec is held to
what its frame says where it says so, and to the budget while it runs where it does not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

import cramjam
import lz4.frame

from kohort.errors import CorruptBatchError, DecompressionBudgetError, UnsupportedCodecError
from kohort.records._zstd import zstd_bound

Bytes: TypeAlias = bytes | bytearray | memoryview

DEFAULT_BUDGET = 64 * 1024 * 1024
"""Bytes that one batch may decompress to."""

_STEP = 64 * 1024
_STEP_MAX = 8 * 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16
_GZIP_MEMBERS = 64
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_RATIO = 32
"""A snappy copy element makes at most 64 bytes out of 3."""
_LZ4_RATIO = 256
"""An lz4 sequence makes at most 255 bytes out of each further byte of its length."""
_ZSTD_FULL = "failed to write whole buffer"


class Compression(IntEnum):
    """The codecs that a batch's attributes can name."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(number: int) -> Compression:
    """The codec of this number, or UnsupportedCodecError."""
    try:
        return Compression(number)
    except ValueError:
        raise UnsupportedCodecError(
            f"compression codec {number} is unknown; known are "
            + ", ".join(f"{codec.value} ({codec.name.lower()})" for codec in Compression)
        ) from None


def compress(codec: int, data: Bytes) -> bytes:
    """``data`` in the framing that Java's producer uses for the codec."""
    return _COMPRESS[codec_of(codec)](bytes(data))


def decompress(codec: int, data: Bytes, budget: int = DEFAULT_BUDGET) -> bytes:
    """What ``data`` holds, if that is at most ``budget`` bytes.

    Raises CorruptBatchError, DecompressionBudgetError or UnsupportedCodecError, without offsets.
    """
    codec = codec_of(codec)
    try:
        return _DECOMPRESS[codec](data, budget)
    except (cramjam.DecompressionError, zlib.error, RuntimeError) as error:
        raise CorruptBatchError(f"does not decompress as {codec.name.lower()}: {error}") from error


def _over_budget(budget: int, size: int | None = None) -> DecompressionBudgetError:
    what = "more" if size is None else f"at least {size} bytes, more"
    return DecompressionBudgetError(f"decompresses to {what} than the budget of {budget} bytes")


def _plain(data: Bytes, budget: int) -> bytes:
    if len(data) > budget:
        raise _over_budget(budget, len(data))
    return bytes(data)


def _gunzip(data: Bytes, budget: int) -> bytes:
    parts: list[bytes] = []
    left = budget
    rest = data
    step = max(_STEP, 8 * len(data))
    # Members may follow each other, but nobody writes many: each costs a copy of what follows.
    for _ in range(_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            # One byte more than is allowed, so that an end just there is still seen as one.
            part = member.decompress(rest, min(step, left + 1))
            rest = member.unconsumed_tail
            left -= len(part)
            if left < 0:
                raise _over_budget(budget)
            if not part and not member.eof:
                raise CorruptBatchError("does not decompress as gzip: it ends too early")
            parts.append(part)
            step = min(2 * step, _STEP_MAX)
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise CorruptBatchError(f"more than {_GZIP_MEMBERS} gzip members in one batch")


def _unsnappy(data: Bytes, budget: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, budget, budget)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatchError("does not decompress as snappy: it ends too early")
    parts: list[bytes] = []
    left = budget
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        start = pos + 4
        pos = start + int.from_bytes(data[pos:start])
        if pos > len(data) or start >= pos:
            raise CorruptBatchError("does not decompress as snappy: a chunk has a wrong length")
        part = _snappy_block(data[start:pos], left, budget)
        left -= len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_block(data: Bytes, left: int, budget: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > left:
        raise _over_budget(budget, budget - left + size)
    if size > _SNAPPY_RATIO * len(data):
        raise CorruptBatchError(f"{size} bytes cannot be in {len(data)} bytes of snappy")
    return bytes(cramjam.snappy.decompress_raw(data))


def _unlz4(data: Bytes, budget: int) -> bytes:
    size = int(lz4.frame.get_frame_info(data)["content_size"])
    if size > budget:
        raise _over_budget(budget, size)
    if size > _LZ4_RATIO * len(data):
        raise CorruptBatchError(f"{size} bytes cannot be in {len(data)} bytes of lz4")
    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = budget
    step = (size or max(_STEP, 4 * len(data))) + 1
    rest: Bytes = data
    while not frame.eof:
        part: bytes = frame.decompress(rest, min(step, left + 1))
        rest = b""
        left -= len(part)
        if left < 0:
            raise _over_budget(budget)
        if not part and not frame.eof:
            raise CorruptBatchError("does not decompress as lz4: it ends too early")
        parts.append(part)
        step = min(2 * step, _STEP_MAX)
    if frame.unused_data:
        raise CorruptBatchError("does not decompress as lz4: bytes follow the frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unzstd(data: Bytes, budget: int) -> bytes:
    size, exact = zstd_bound(data, budget)
    if size <= budget:
        return bytes(cramjam.zstd.decompress(data))
    if exact:
        raise _over_budget(budget, size)
    # Blocks that could, but need not, hold more than the budget: try with growing buffers, since
    # there is no telling from the outside whether a frame is corrupt or its buffer too small.
    room = min(budget, max(_STEP, 16 * len(data)))
    while True:
        buffer = bytearray(room)
        try:
            return bytes(memoryview(buffer)[: cramjam.zstd.decompress_into(data, buffer)])
        except cramjam.DecompressionError as error:
            if room == budget:
                if _ZSTD_FULL in str(error):
                    raise _over_budget(budget) from None
                raise
        del buffer  # before the next one is made
        room = min(budget, 4 * room)


def _snappy(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for pos in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4), block)
    return b"".join(parts)


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=_GZIP)
    return stream.compress(data) + stream.flush()


def _lz4(data: bytes) -> bytes:
    frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return frame


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, 3))


_COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
_DECOMPRESS: dict[Compression, Callable[[Bytes, int], bytes]] = {
    Compression.NONE: _plain,
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
