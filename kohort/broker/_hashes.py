"""Java's hash that maps groups to coordinators."""

from __future__ import annotations

import struct
from functools import lru_cache

_MASK = 0xFFFFFFFF


def java_string_hash(text: str) -> int:
    """Return ``String.hashCode``, over UTF-16 code units, as a signed 32-bit number."""
    h = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        h = (31 * h + unit) & _MASK
    return h - (1 << 32) if h >> 31 else h


@lru_cache(maxsize=1024)
def coordinator_partition(group_id: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` for a group. abs(MIN_VALUE) counts as 0."""
    h = java_string_hash(group_id)
    return 0 if h == -(1 << 31) else abs(h) % partitions
