"""The orders that the Java client goes by: where several deals are as good, they decide."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.types import TopicPartition

_MASK = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def java_order(name: str) -> bytes:
    """A sort key: Java compares strings by their UTF-16 units, Python by code points."""
    return name.encode("utf-16-be", "surrogatepass")


def java_hash(name: str) -> int:
    """``String.hashCode()``, as an unsigned number of 32 bits."""
    units = memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def partition_hash(tp: TopicPartition) -> int:
    """``TopicPartition.hashCode()``, as an unsigned number of 32 bits."""
    return (31 * (31 + tp.partition) + java_hash(tp.topic)) & _MASK


def bucket(value: int, table: int) -> int:
    """Where a HashMap with ``table`` buckets puts a key of this hash."""
    return (value ^ (value >> 16)) & (table - 1)


def table_for(size: int) -> int:
    """How many buckets a HashMap has that has grown to ``size`` keys."""
    table = _SMALLEST_TABLE
    while size > table * 3 // 4:
        table *= 2
    return table


def hash_order(names: Iterable[str]) -> list[str]:
    """The names as a HashMap that they are put into one after the other gives them back."""
    found = list(names)
    table = table_for(len(found))
    return sorted(found, key=lambda name: bucket(java_hash(name), table))
