"""Compression codecs of record batches, their library, and the compression itself."""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

from kohort.errors import UnsupportedCodecError

Bytes: TypeAlias = bytes | bytearray | memoryview

DEFAULT_BUDGET = 64 * 1024 * 1024
"""Most bytes that one batch may decompress to."""

GZIP = zlib.MAX_WBITS | 16
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024


class Compression(IntEnum):
    """Codecs in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(number: int) -> Compression:
    """Return the codec of a number. Raises UnsupportedCodecError."""
    try:
        return Compression(number)
    except ValueError:
        raise UnsupportedCodecError(
            f"compression codec {number} is unknown. Known codecs are "
            + ", ".join(f"{codec.value} ({codec.name.lower()})" for codec in Compression)
        ) from None


@functools.cache
def cramjam() -> Any:
    """Return the library of snappy, lz4 and zstd. Raises UnsupportedCodecError.

    The first such batch imports it, because an import takes time. It also fails where a library
    does not support the interpreter, such as a subinterpreter.
    """
    try:
        return importlib.import_module("cramjam")
    except ImportError as error:
        raise UnsupportedCodecError(
            "batches compressed with snappy, lz4 and zstd cannot be read or written here, because "
            f"the package 'cramjam' cannot be imported: {error}. Install it with 'pip install "
            "cramjam', use the main interpreter, or gzip or no compression"
        ) from error


@functools.cache
def optional_cramjam() -> Any:
    """Return the library, or None if it cannot be imported. It is faster than zlib at gzip."""
    try:
        return cramjam()
    except UnsupportedCodecError:
        return None


@functools.cache
def optional_isal() -> Any:
    """Return the gzip decoder of the package isal, or None if it cannot be imported.

    It takes two thirds of the time of cramjam's, on CPUs for which isal is written.
    """
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return None


def library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the imported library for data that it cannot decompress."""
    plain = (zlib.error, RuntimeError)
    # While another thread imports it, the module exists without its contents.
    found = getattr(sys.modules.get("cramjam"), "DecompressionError", None)
    return plain if found is None else (found, *plain)


def compress(codec: int, data: Bytes) -> bytes:
    """Compress ``data`` in the framing that Java's producer uses for the codec."""
    return _COMPRESS[codec_of(codec)](bytes(data))


def _snappy(data: bytes) -> bytes:
    parts = [XERIAL_HEADER]
    for pos in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam().snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4), block)
    return b"".join(parts)


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=GZIP)
    return stream.compress(data) + stream.flush()


def _lz4(data: bytes) -> bytes:
    from kohort.records.codecs._lz4 import BLOCK_SIZE, independent_frame  # only for producers

    compress_block = cramjam().lz4.compress_block
    parts = [data[pos : pos + BLOCK_SIZE] for pos in range(0, len(data), BLOCK_SIZE)]
    return independent_frame(
        (part, bytes(compress_block(part, store_size=False))) for part in parts
    )


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam().zstd.compress(data, 3))


_COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
