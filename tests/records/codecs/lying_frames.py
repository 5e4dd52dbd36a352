"""Compressed frames that hold more than they say, or say more than they hold."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import pytest

from kohort.records import Compression, compress
from kohort.records.codecs._lz4 import header_checksum

cramjam = pytest.importorskip("cramjam")  # not each free-threaded Python has it

MB = 1024 * 1024


TEXT = b"".join(b"line %d of something that repeats itself\n" % number for number in range(5000))


def _zstd_stream(parts: list[bytes]) -> bytes:
    """Return a frame without a content size and with one block for each part."""
    stream = cramjam.zstd.Compressor()
    packed = b""
    for part in parts:
        stream.compress(part)
        packed += bytes(stream.flush())
    return packed + bytes(stream.finish())


def _zstd_rle(blocks: int, *, window: int = 0x58, stated: int | None = None) -> bytes:
    """Return ``blocks`` times 128 KiB of zeros in four bytes each."""
    frame = b"\x28\xb5\x2f\xfd"
    frame += b"\x00" + bytes([window]) if stated is None else b"\xa0" + struct.pack("<I", stated)
    for number in range(blocks):
        frame += (131072 << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") + b"\x00"
    return frame


def _gzip_zeros(size: int) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return b"".join(stream.compress(bytes(MB)) for _ in range(size // MB)) + stream.flush()


def _lz4_zeros(size: int) -> bytes:
    frame: bytes = lz4.frame.compress(bytes(size), store_size=False)
    return frame


def _xerial_zeros(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MB)))
    return compress(Compression.SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * (
        size // MB
    )


BOMBS: dict[str, Callable[[], tuple[Compression, bytes]]] = {
    "gzip": lambda: (Compression.GZIP, _gzip_zeros(100 * MB)),
    "gzip-large": lambda: (Compression.GZIP, _gzip_zeros(400 * MB)),
    "snappy": lambda: (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(100 * MB)))),
    "xerial": lambda: (Compression.SNAPPY, _xerial_zeros(100 * MB)),
    "lz4": lambda: (Compression.LZ4, _lz4_zeros(100 * MB)),
    "lz4-sized": lambda: (Compression.LZ4, lz4.frame.compress(bytes(100 * MB))),
    "zstd": lambda: (Compression.ZSTD, _zstd_stream([bytes(MB)] * 100)),
    "zstd-sized": lambda: (Compression.ZSTD, bytes(cramjam.zstd.compress(bytes(100 * MB)))),
    "zstd-blocks": lambda: (Compression.ZSTD, _zstd_rle(800)),
    "zstd-lying": lambda: (Compression.ZSTD, _zstd_rle(800, stated=10)),
}


def _zstd_claims(head: bytes) -> bytes:
    """Return three bytes in a frame that claims another size."""
    return b"\x28\xb5\x2f\xfd" + head + (3 << 3 | 1).to_bytes(3, "little") + b"abc"


def _lz4_claims(*, size: int | None = None, **options: object) -> bytes:
    """Return a few bytes in a frame that allows blocks of 4 MiB."""
    packed = bytearray(lz4.frame.compress(TEXT[:100], block_size=4, **options))
    packed[5] = 0x70
    if size is not None:
        packed[4] |= 8
        packed[6:6] = size.to_bytes(8, "little")
    at = 14 if packed[4] & 8 else 6
    packed[at] = header_checksum(bytes(packed[4:at]))
    return bytes(packed)


def _snappy_claims(block: bytes) -> bytes:
    """Return 1 MB that claims to be 21 MB."""
    return b"\x80\x80\x80\x0a" + block


NOISE = random.Random(5).randbytes(MB)


LITERAL = b"\xf8" + (MB - 1).to_bytes(3, "little") + NOISE


SNAPPY_LIE = _snappy_claims(LITERAL)


LIES = {
    "gzip": (Compression.GZIP, gzip.compress(TEXT)[:-4] + (60 * MB).to_bytes(4, "little")),
    "snappy": (Compression.SNAPPY, SNAPPY_LIE),
    "xerial": (
        Compression.SNAPPY,
        compress(Compression.SNAPPY, b"") + len(SNAPPY_LIE).to_bytes(4) + SNAPPY_LIE,
    ),
    "lz4-blocks": (Compression.LZ4, _lz4_claims(block_linked=False, store_size=False)),
    "lz4-linked": (Compression.LZ4, _lz4_claims(block_linked=True, store_size=False)),
    "lz4-checksum": (Compression.LZ4, _lz4_claims(content_checksum=True, store_size=False)),
    "lz4-size": (Compression.LZ4, _lz4_claims(size=60 * MB, store_size=False)),
    "zstd-window": (Compression.ZSTD, _zstd_claims(b"\x00\x88")),
    "zstd-size": (Compression.ZSTD, _zstd_claims(b"\xa0" + (60 * MB).to_bytes(4, "little"))),
    "zstd-both": (
        Compression.ZSTD,
        _zstd_claims(b"\x80\x88" + (60 * MB).to_bytes(4, "little")),
    ),
}
