"""Computation of CRC-32C, the checksum of record batches.

``RecordBatch.check_crc()`` checks one batch. ``read_plain()`` in ``_record_decoder`` and
``take_plain()`` in ``_columns`` check each batch that they decode.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with its bits reversed."""


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute the CRC-32C (Castagnoli) of a contiguous buffer."""
    return _library()(data)


@functools.cache
def _library() -> Callable[[bytes | bytearray | memoryview], int]:
    """Return the function of the package crc32c, or the plain one, which is far slower."""
    try:
        # The import is slow, and a consumer with the compiled decoder may never need it.
        from crc32c import crc32c as compute
    except ImportError as error:
        warnings.warn(
            f"the package 'crc32c' cannot be imported: {error}. A plain function checks record "
            "batches and is several hundred times slower. Install it with 'pip install crc32c'",
            RuntimeWarning,
            stacklevel=3,
        )
        return plain_crc32c
    return compute


def plain_crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute the CRC-32C without a library."""
    table, crc = _table(), 0xFFFF_FFFF
    for byte in memoryview(data).cast("B"):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


@functools.cache
def _table() -> tuple[int, ...]:
    """Return the CRC of each byte."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def checksum(data: bytes | bytearray | memoryview, start: int, stop: int) -> int:
    """Compute the CRC-32C of a part of the bytes."""
    return crc32c(memoryview(data)[start:stop])
