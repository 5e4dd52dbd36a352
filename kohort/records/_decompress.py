"""Decompression into memory that is used again, under a budget checked before it is taken.

What an honest broker sends is small; the sizes written in frames are claims. Each codec is held to
what its frame can hold where that can be told, and to the budget while it runs where it cannot.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from kohort.errors import CorruptBatchError, DecompressionBudgetError
from kohort.records._codecs import cramjam, errors, lz4_frame
from kohort.records._compression import (
    DEFAULT_BUDGET,
    GZIP,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    Bytes,
    Compression,
    codec_of,
)
from kohort.records._lz4 import (
    Block,
    Lz4Frame,
    broken,
    header_checksum,
    read_blocks,
    read_frame,
    with_small_blocks,
)
from kohort.records._scratch import Output, Scratch
from kohort.records._snappy import snappy_size
from kohort.records._zstd import decompress_with_libzstd, with_small_windows, zstd_bound

_STEP = 256 * 1024
"""Bytes that a codec without a way to write into our memory makes at once."""
_INPUT_STEP = 64 * 1024
_GZIP_MEMBERS = 64
_XERIAL_CHUNKS = 1 << 18
_SNAPPY_RATIO = 22
"""A snappy copy element makes at most 64 bytes out of 3."""
_ZSTD_FULL = "failed to write whole buffer"


def decompress(codec: int, data: Bytes, budget: int = DEFAULT_BUDGET) -> bytes:
    """What ``data`` holds, if that is at most ``budget`` bytes; errors as of decompress_into()."""
    return bytes(decompress_into(codec, data, Scratch(), budget))


def decompress_into(
    codec: int,
    data: Bytes,
    scratch: Scratch,
    budget: int = DEFAULT_BUDGET,
    *,
    any_lz4_header_checksum: bool = False,
) -> memoryview:
    """What ``data`` holds, at most ``budget`` bytes, in the scratch: valid until its next use.

    Raises CorruptBatchError, DecompressionBudgetError or UnsupportedCodecError, without offsets.
    What is not compressed is returned as it is. ``any_lz4_header_checksum``: see KIP-57.
    """
    view = memoryview(data)
    decoder = _DECOMPRESS.get(codec)
    if decoder is None:
        if codec_of(codec) is Compression.NONE and len(view) > budget:
            raise _over_budget(budget, len(view))
        return view
    out = Output(scratch, budget)
    try:
        if any_lz4_header_checksum and codec == Compression.LZ4:
            view = _with_header_checksum(view)
        decoder(view, out)
    except errors() as error:
        name = codec_of(codec).name.lower()
        raise CorruptBatchError(f"does not decompress as {name}: {error}") from error
    return out.finished(len(view))


def _over_budget(budget: int, size: int | None = None) -> DecompressionBudgetError:
    what = "more" if size is None else f"at least {size} bytes, more"
    return DecompressionBudgetError(f"decompresses to {what} than the budget of {budget} bytes")


def _gunzip(data: memoryview, out: Output) -> None:
    # The last four bytes are what the last member holds: a hint, and no more is made of it.
    out.reserve(out.plausible(data, int.from_bytes(data[-4:], "little")))
    pos = 0
    # Members may follow each other, but nobody writes many.
    for _ in range(_GZIP_MEMBERS):
        member = zlib.decompressobj(GZIP)
        while not member.eof:
            # In steps: what a call leaves of its input is copied for the next one.
            rest: Bytes = data[pos : pos + _INPUT_STEP]
            if not rest:
                raise CorruptBatchError("does not decompress as gzip: it ends too early")
            pos += len(rest)
            while rest and not member.eof:
                # One byte more than is allowed, so that an end just there is still seen as one.
                part = member.decompress(rest, min(_STEP, out.budget - out.size + 1))
                rest = member.unconsumed_tail
                if out.size + len(part) > out.budget:
                    raise _over_budget(out.budget)
                out.add(part)
        pos -= len(member.unused_data)
        if pos == len(data):
            return
    raise CorruptBatchError(f"more than {_GZIP_MEMBERS} gzip members in one batch")


def _unsnappy(data: memoryview, out: Output) -> None:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        _snappy_chunks(data, [data], out)
        return
    if len(data) < len(XERIAL_HEADER):
        raise CorruptBatchError("does not decompress as snappy: it ends too early")
    chunks: list[memoryview] = []
    pos = len(XERIAL_HEADER)
    while pos < len(data):
        start = pos + 4
        pos = start + int.from_bytes(data[pos:start])
        if pos > len(data) or start >= pos:
            raise CorruptBatchError("does not decompress as snappy: a chunk has a wrong length")
        chunks.append(data[start:pos])
        if len(chunks) > _XERIAL_CHUNKS:
            raise CorruptBatchError(f"more than {_XERIAL_CHUNKS} snappy chunks in one batch")
    _snappy_chunks(data, chunks, out)


def _snappy_chunks(data: memoryview, chunks: list[memoryview], out: Output) -> None:
    sizes: list[int] = []
    total = 0
    for chunk in chunks:
        size = cramjam().snappy.decompress_raw_len(chunk)
        total += size
        if total > out.budget:
            raise _over_budget(out.budget, total)
        if size > _SNAPPY_RATIO * len(chunk):
            raise CorruptBatchError(f"{size} bytes cannot be in {len(chunk)} bytes of snappy")
        sizes.append(size)
    if total > out.plausible(data, total) and sum(map(snappy_size, chunks)) != total:
        raise CorruptBatchError("what is in it is not as much as its snappy says")
    room = out.reserve(total)
    for chunk, size in zip(chunks, sizes, strict=True):
        at = out.size
        out.size += cramjam().snappy.decompress_raw_into(chunk, room[at : at + size])


def _unlz4(data: memoryview, out: Output) -> None:
    frame = read_frame(data)
    if not frame.header_checksum_is_right:
        raise broken("its header has a wrong checksum")
    stated = frame.size
    if stated is not None and stated > out.budget:
        raise _over_budget(out.budget, stated)
    blocks = read_blocks(data, frame)
    if blocks is None:
        _lz4_stream(data, out)
        return
    most = sum([block[3] for block in blocks])
    if stated is not None:
        if stated > most:
            raise CorruptBatchError(f"{stated} bytes cannot be in {len(data)} bytes of lz4")
        most = stated
    plausible = most <= out.plausible(data, most)
    if plausible and frame.plain:
        _lz4_blocks(data, blocks, out.reserve(most), out)
        if stated is not None and stated != out.size:
            raise broken(f"it holds {out.size} bytes and says {stated}")
        return
    *likely, sure = with_small_blocks(data, frame, blocks)
    for each in likely:
        try:
            _lz4_whole(each, most, out, in_steps=not plausible)
            return
        except errors():
            out.size = 0  # a block was larger than is likely, or something is wrong
    _lz4_whole(sure, most, out, in_steps=not plausible)


def _lz4_whole(data: Bytes, most: int, out: Output, *, in_steps: bool) -> None:
    if in_steps:
        _lz4_stream(data, out)
    else:
        out.size = cramjam().lz4.decompress_into(data, out.reserve(most))


def _lz4_blocks(data: memoryview, blocks: list[Block], room: memoryview, out: Output) -> None:
    """Straight from each block into its place, which takes a copy less than the frame's decoder."""
    at = 0
    for start, end, stored, most in blocks:
        if stored:
            if end - start > len(room) - at:
                raise broken("it holds more bytes than it says")
            room[at : at + most] = data[start:end]
            at += most
        else:
            at += cramjam().lz4.decompress_block_into(data[start:end], room[at : at + most])
    out.size = at


def _lz4_stream(data: Bytes, out: Output) -> None:
    """Piece by piece, for a frame that could hold far more than its size makes likely."""
    frame = lz4_frame().LZ4FrameDecompressor()
    rest: Bytes = data
    while not frame.eof:
        part: bytes = frame.decompress(rest, min(_STEP, out.budget - out.size + 1))
        rest = b""
        if out.size + len(part) > out.budget:
            raise _over_budget(out.budget)
        if not part and not frame.eof:
            raise broken("it ends too early")
        out.add(part)
    if frame.unused_data:
        raise broken("bytes follow the frame")


def _with_header_checksum(data: memoryview) -> memoryview:
    """The frame with the header checksum that it should have."""
    frame: Lz4Frame = read_frame(data)
    if frame.header_checksum_is_right:
        return data
    fixed = bytearray(data)
    at = frame.header_end - 1
    fixed[at] = header_checksum(bytes(data[4:at]))
    return memoryview(fixed)


def _unzstd(data: memoryview, out: Output) -> None:
    most, exact, frames = zstd_bound(data, out.budget)
    if most > out.budget and exact:
        raise _over_budget(out.budget, most)
    # Blocks that could hold much may hold little: try with growing buffers, since there is no
    # telling from the outside whether a frame is corrupt or its buffer too small.
    enough = min(most, out.budget)
    room = out.plausible(data, enough)
    while True:
        try:
            fitted = with_small_windows(data, frames, room)
            out.size = cramjam().zstd.decompress_into(fitted, out.reserve(room))
            return
        except cramjam().DecompressionError as error:
            full = _ZSTD_FULL in str(error)
            if room == enough or not full:
                if full and most > out.budget:
                    raise _over_budget(out.budget) from None
                size = decompress_with_libzstd(data, frames, out.reserve(room))
                if size < 0:
                    raise
                out.size = size
                return
        room = min(enough, 4 * room)


_DECOMPRESS: dict[int, Callable[[memoryview, Output], None]] = {
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
