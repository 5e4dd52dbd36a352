"""The checksum of record batches."""

from __future__ import annotations

import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C (Castagnoli) of a contiguous buffer."""
    return _crc32c.crc32c(data)
