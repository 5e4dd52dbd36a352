"""Hash of the topics that a group is subscribed to. A change of it starts a new assignment.

Numbers are little-endian. A string is its UTF-16 code units and then their count.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from kohort.broker.groups.consumer._xxh3 import xxh3_64

_VERSION = b"\0"
NO_TOPIC = 0
"""Hash of a topic that does not exist, and of a group without topics."""


def topic_hash(topic_id: bytes, name: str, racks_by_partition: Sequence[Sequence[str]]) -> int:
    """Return the hash of a topic, a signed number of 64 bits.

    ``racks_by_partition``: the racks of the replicas of each partition, in any order.
    """
    high, low = struct.unpack(">qq", topic_id)
    parts = [_VERSION, struct.pack("<qq", high, low), _string(name)]
    parts.append(struct.pack("<i", len(racks_by_partition)))
    for partition, racks in enumerate(racks_by_partition):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(racks, key=_java_order):
            parts.append(struct.pack("<i", len(_java_order(rack)) // 2))
            parts.append(_string(rack))
    return _signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """Return the hash of a group by the names and hashes of its topics."""
    if not topic_hashes:
        return NO_TOPIC
    ordered = (topic_hashes[name] for name in sorted(topic_hashes, key=_java_order))
    return _signed(xxh3_64(b"".join(struct.pack("<q", each) for each in ordered)))


def _java_order(text: str) -> bytes:
    """Return a key that sorts strings as Java does, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
