"""Kafka's default partition of a key, which producers of all languages share."""

from __future__ import annotations

import struct
from functools import lru_cache

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 (seed 0x9747b28c) as an unsigned 32-bit number."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", memoryview(data)[:whole]):
        k = word * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65536)
def key_partition(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner selects for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
