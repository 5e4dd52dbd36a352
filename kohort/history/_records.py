"""Records of ``__consumer_offsets``: keys and values of the groups of both protocols."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar

from kohort.errors import MessageDecodeError
from kohort.protocol import Message, decode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.types import TopicPartition

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)

_INT16 = struct.Struct(">h")
_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
}
"""Classes of the key and the value of each type of record that a history needs."""


def offsets_partition(group_id: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that stores a group, as Kafka computes it."""
    found = 0
    for (unit,) in struct.iter_unpack("<H", group_id.encode("utf-16-le", "surrogatepass")):
        found = 31 * found + unit & 0xFFFFFFFF
    # Java's abs() of the smallest number is negative, for which Kafka takes 0.
    distance = min(found, (1 << 32) - found)
    return 0 if distance == 1 << 31 else distance % partitions


def record_of(
    key: bytes | None, value: bytes | None, group_id: str
) -> tuple[Message, Message | None] | None:
    """Return the key and the value of a record of a group. None for any other record.

    A value is None if the record deletes the key. Raise MessageDecodeError for an unknown version.
    """
    if key is None or len(key) < 4:
        return None
    (kind,) = _INT16.unpack_from(key)
    if kind not in _KINDS or not _is_of(key, group_id):
        return None
    key_class, value_class = _KINDS[kind]
    found = decode(key_class, 0, memoryview(key)[2:])
    if value is None:
        return found, None
    (version,) = _INT16.unpack_from(value)
    return found, decode(value_class, version, memoryview(value)[2:])


def _is_of(key: bytes, group_id: str) -> bool:
    """True if a key begins with this group, which is its first field in each type."""
    name = group_id.encode()
    return key[2:4] == _INT16.pack(len(name)) and key.startswith(name, 4)


def assignment_of(data: bytes) -> Iterator[TopicPartition]:
    """Yield the partitions in the assignment of a classic member."""
    found = _versioned(ConsumerProtocolAssignment, data)
    if found is not None:
        for each in found.assigned_partitions:
            yield from (TopicPartition(each.topic, number) for number in each.partitions)


def topics_of(data: bytes) -> frozenset[str]:
    """Return the topics in the subscription of a classic member."""
    found = _versioned(ConsumerProtocolSubscription, data)
    return frozenset() if found is None else frozenset(found.topics)


def _versioned(kind: type[M], data: bytes) -> M | None:
    """Return a message after its version, or None for the bytes of another protocol."""
    if len(data) < 2:
        return None
    (version,) = _INT16.unpack_from(data)
    try:
        return decode(kind, min(version, 3), memoryview(data)[2:])
    except MessageDecodeError:
        return None
