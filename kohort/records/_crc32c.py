"""Computation of CRC-32C, the checksum of record batches.

``RecordBatch.check_crc()`` checks one batch. ``read_plain()`` in ``_record_decoder`` and
``take_plain()`` in ``_columns`` check each batch that they decode.
"""

from __future__ import annotations


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute the CRC-32C (Castagnoli) of a contiguous buffer."""
    # The import is slow, and a consumer with the compiled decoder may never need it.
    from crc32c import crc32c as compute

    return compute(data)


def checksum(data: bytes | bytearray | memoryview, start: int, stop: int) -> int:
    """Compute the CRC-32C of a part of the bytes."""
    return crc32c(memoryview(data)[start:stop])
