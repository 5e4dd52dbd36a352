"""Decompression into reused memory, under a budget that is checked before memory is allocated.

Sizes written in frames are unverified:

- The headers of its blocks give the limit of a zstd or lz4 frame. The decoder allocates memory for
  what a frame can contain.
- While its size is unverified, a frame gets at most 7 times its bytes and 384 KiB. It gets more if
  the ratio of the batch before makes that likely.
- Frames claim windows and block sizes for which the libraries allocate memory at once. These claims
  are reduced before the libraries see them.
- ``_snappy`` first measures a snappy block that claims more.
- The end of a gzip stream claims a size, which one attempt uses if it is likely.

Each other codec is limited by the budget while it runs. Independent lz4 blocks go directly to their
final place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from kohort.errors import CorruptBatchError, DecompressionBudgetError
from kohort.records.codecs._compression import (
    DEFAULT_BUDGET,
    GZIP,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    Bytes,
    Compression,
    codec_of,
    cramjam,
    library_errors,
    optional_cramjam,
    optional_isal,
)
from kohort.records.codecs._lz4 import (
    Block,
    Lz4Frame,
    broken,
    header_checksum,
    read_blocks,
    read_frame,
    with_small_blocks,
)
from kohort.records.codecs._scratch import Output, Scratch
from kohort.records.codecs._snappy import snappy_size
from kohort.records.codecs._zstd import decompress_with_libzstd, with_small_windows, zstd_bound

_STEP = 256 * 1024
"""Bytes of one step of a codec that cannot write into given memory."""
_INPUT_STEP = 64 * 1024
_GZIP_MEMBERS = 64
_ISAL_MOST = 4 << 20
"""Bytes up to which isal is used. It cannot write into given memory, so they take memory twice."""
_XERIAL_CHUNKS = 1 << 18
_SNAPPY_RATIO = 22
"""Largest ratio of snappy, whose copy element makes at most 64 bytes of 3."""
_FULL = "failed to write whole buffer"
"""Start of cramjam's error for a target that is too small."""


def decompress(codec: int, data: Bytes, budget: int = DEFAULT_BUDGET) -> bytes:
    """Decompress ``data`` to at most ``budget`` bytes. Raises as decompress_into() does."""
    return bytes(decompress_into(codec, data, Scratch(), budget))


def decompress_into(
    codec: int,
    data: Bytes,
    scratch: Scratch,
    budget: int = DEFAULT_BUDGET,
    *,
    any_lz4_header_checksum: bool = False,
) -> memoryview:
    """Decompress ``data`` to at most ``budget`` bytes in the scratch.

    The result is valid until the next use of the scratch. Uncompressed data is returned unchanged.
    Raises CorruptBatchError, DecompressionBudgetError or UnsupportedCodecError, without offsets.
    ``any_lz4_header_checksum`` accepts the wrong checksums of KIP-57.
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
    except library_errors() as error:
        name = codec_of(codec).name.lower()
        raise CorruptBatchError(f"does not decompress as {name}: {error}") from error
    return out.finished(len(view))


def _over_budget(budget: int, size: int | None = None) -> DecompressionBudgetError:
    what = "more" if size is None else f"at least {size} bytes, more"
    return DecompressionBudgetError(f"decompresses to {what} than the budget of {budget} bytes")


def _gunzip(data: memoryview, out: Output) -> None:
    if not _gunzip_at_once(data, out):
        _gunzip_in_steps(data, out)


def _gunzip_at_once(data: memoryview, out: Output) -> bool:
    """Decompress with isal or cramjam, which are faster than zlib. Return False if it refuses.

    It gets the room of a likely size and writes nothing outside of it. It refuses all that zlib
    refuses, and a stream of several members, whose last one has the size. So zlib alone decides
    what is corrupt.
    """
    # The last four bytes are the size of the last member, which is only a hint.
    size = int.from_bytes(data[-4:], "little")
    room = out.reserve(out.plausible(data, size))
    if not 0 < size == len(room):
        return False
    if size <= _ISAL_MOST and (isal := optional_isal()) is not None:
        return _gunzip_with_isal(isal, data, room, out)
    library = optional_cramjam()
    if library is None:
        return False
    try:
        out.size = library.gzip.decompress_into(data, room)
    except library_errors():
        return False
    return out.size == size


def _gunzip_with_isal(isal: Any, data: memoryview, room: memoryview, out: Output) -> bool:
    member = isal.decompressobj(wbits=GZIP)
    try:
        # One byte over the size shows whether the data ends there.
        content = member.decompress(data, len(room) + 1)
    except isal.error:
        return False
    if len(content) != len(room) or not member.eof or member.unused_data:
        return False
    room[:] = content
    out.size = len(content)
    return True


def _gunzip_in_steps(data: memoryview, out: Output) -> None:
    """Decompress with zlib, in buffers that grow up to the budget."""
    out.size = 0
    pos = 0
    # Several members may follow each other, but producers write few.
    for _ in range(_GZIP_MEMBERS):
        member = zlib.decompressobj(GZIP)
        while not member.eof:
            # Steps keep the rest of the input small, which each call copies for the next one.
            rest: Bytes = data[pos : pos + _INPUT_STEP]
            if not rest:
                raise CorruptBatchError("does not decompress as gzip: it ends too early")
            pos += len(rest)
            while rest and not member.eof:
                # One byte over the limit shows whether the data ends at the limit.
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
        raise CorruptBatchError("its content is smaller than its snappy header says")
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
        _lz4_whole(data, out.budget + 1, out)
        return
    most = sum([block[3] for block in blocks])
    if stated is not None:
        if stated > most:
            raise CorruptBatchError(f"{stated} bytes cannot be in {len(data)} bytes of lz4")
        most = stated
    if frame.plain and most <= out.plausible(data, most):
        _lz4_blocks(data, blocks, out.reserve(most), out)
        if stated is not None and stated != out.size:
            raise broken(f"it holds {out.size} bytes and says {stated}")
        return
    *likely, sure = with_small_blocks(data, frame, blocks)
    for each in likely:
        try:
            _lz4_whole(each, most, out)
            return
        except library_errors():
            out.size = 0  # a block was larger than likely, or the frame is corrupt
    _lz4_whole(sure, most, out)


def _lz4_whole(data: Bytes, most: int, out: Output) -> None:
    """Decompress a frame that holds at most ``most`` bytes, in buffers that grow to that size."""
    enough = min(most, out.budget)
    room = out.plausible(memoryview(data), enough)
    while True:
        try:
            out.size = cramjam().lz4.decompress_into(data, out.reserve(room))
            return
        except cramjam().DecompressionError as error:
            if _FULL not in str(error):
                raise
            if room == enough:
                if most > out.budget:
                    raise _over_budget(out.budget) from None
                raise
        room = min(enough, 4 * room)


def _lz4_blocks(data: memoryview, blocks: list[Block], room: memoryview, out: Output) -> None:
    """Decompress each block into its place, which saves a copy of the frame's decoder."""
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


def _with_header_checksum(data: memoryview) -> memoryview:
    """Return the frame with a correct header checksum."""
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
    # Blocks that could hold much may hold little. Try growing buffers, since the error does not
    # show whether the frame is corrupt or the buffer too small.
    enough = min(most, out.budget)
    room = out.plausible(data, enough)
    while True:
        try:
            fitted = with_small_windows(data, frames, room)
            out.size = cramjam().zstd.decompress_into(fitted, out.reserve(room))
            return
        except cramjam().DecompressionError as error:
            full = _FULL in str(error)
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
