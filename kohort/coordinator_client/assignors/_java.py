"""The Java client's orders, which decide between equally good assignments."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.types import TopicPartition

_MASK = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def java_order(name: str) -> bytes:
    """Return a sort key. Java compares strings by UTF-16 units, Python by code points."""
    return name.encode("utf-16-be", "surrogatepass")


def java_hash(name: str) -> int:
    """Return ``String.hashCode()`` as an unsigned number of 32 bits."""
    units = memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def partition_hash(tp: TopicPartition) -> int:
    """Return ``TopicPartition.hashCode()`` as an unsigned number of 32 bits."""
    return (31 * (31 + tp.partition) + java_hash(tp.topic)) & _MASK


def bucket(value: int, table: int) -> int:
    """Return the index of a hash's bucket in a HashMap with ``table`` buckets."""
    return (value ^ (value >> 16)) & (table - 1)


def table_for(size: int) -> int:
    """Return the number of buckets of a HashMap that has grown to ``size`` keys."""
    table = _SMALLEST_TABLE
    while size > table * 3 // 4:
        table *= 2
    return table


def hash_order(names: Iterable[str]) -> list[str]:
    """Return the names in the iteration order of a HashMap after inserting them in turn."""
    found = list(names)
    table = table_for(len(found))
    return sorted(found, key=lambda name: bucket(java_hash(name), table))
