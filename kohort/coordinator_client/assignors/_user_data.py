"""The user data of the sticky assignors in Kafka's encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kohort.types import NamedTuple, TopicPartition

NO_GENERATION = -1

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


class Claim(NamedTuple):
    """The partitions and the generation that a member claims. None is an unknown generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None


def write_generation(generation: int) -> bytes:
    """Encode the generation of the owned partitions as version 0 of cooperative-sticky."""
    return _COUNT.pack(generation)


def read_generation(data: bytes | None) -> int | None:
    """Decode the generation. Return None without data, and NO_GENERATION for invalid data."""
    if data is None:
        return None
    if len(data) < _COUNT.size:
        return NO_GENERATION
    generation: int = _COUNT.unpack_from(data)[0]
    return generation


def write_claim(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode the partitions by topic and their generation as version 1 of sticky."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    parts = [_COUNT.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts.append(_LENGTH.pack(len(name)) + name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_COUNT.pack(generation))
    return b"".join(parts)


def read_claim(data: bytes | None) -> Claim:
    """Decode a claim of version 0 or 1 of sticky. Version 0 has no generation.

    Invalid data is an empty claim, because a member with another encoding must not stop the group.
    """
    if not data:
        return Claim()
    try:
        partitions, at = _read_partitions(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return Claim((), NO_GENERATION)
    if len(data) - at < _COUNT.size:
        return Claim(partitions, None)
    return Claim(partitions, _COUNT.unpack_from(data, at)[0])


def _read_partitions(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    topics, at = _read_count(data, 0, _LENGTH.size + _COUNT.size)
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"the topic name has an invalid length of {length} bytes")
        topic = data[at : at + length].decode()
        count, at = _read_count(data, at + length, _COUNT.size)
        numbers = struct.unpack_from(f">{count}i", data, at)
        found.extend(TopicPartition(topic, number) for number in numbers)
        at += count * _COUNT.size
    return tuple(found), at


def _read_count(data: bytes, at: int, item_size: int) -> tuple[int, int]:
    """Decode a count of items with at least ``item_size`` bytes each.

    Raise ValueError if the data is too short for the items.
    """
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if not 0 <= count <= (len(data) - at) // item_size:
        raise ValueError(f"the count of {count} items exceeds the {len(data) - at} bytes of data")
    return count, at
