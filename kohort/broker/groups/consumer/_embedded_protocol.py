"""Subscriptions and assignments of classic members, as the consumer's protocol encodes them."""

from __future__ import annotations

import struct

from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups._topic_view import GroupTopicView
from kohort.broker.groups.consumer._member import unite
from kohort.errors import MessageDecodeError
from kohort.protocol import decode_from, encode
from kohort.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kohort.types import NamedTuple

_VERSION = struct.Struct(">h")


class ClassicSubscription(NamedTuple):
    """ClassicSubscription of a classic member. ``owned`` has the partitions that it owns."""

    topics: frozenset[str]
    rack_id: str | None
    owned: PartitionSets


class ClassicAssignment(NamedTuple):
    """Assignment of a classic member. ``has_user_data`` is True if an assignor added data."""

    partitions: PartitionSets
    has_user_data: bool


def version_of(data: bytes) -> int:
    """Return the version of encoded data; MessageDecodeError if there is none."""
    if len(data) < _VERSION.size:
        raise MessageDecodeError("the data of a classic member has no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MessageDecodeError(f"the data of a classic member has version {version}")
    return int(version)


def read_subscription(data: bytes, topics: GroupTopicView) -> ClassicSubscription:
    """Return a decoded subscription; MessageDecodeError if it is malformed."""
    cls = ConsumerProtocolSubscription
    version = min(version_of(data), cls.versions.last)
    message, _ = decode_from(cls, version, data, _VERSION.size)
    owned = unite(
        (topic.topic_id, each.partitions)
        for each in message.owned_partitions
        if (topic := topics.named(each.topic)) is not None
    )
    rack = message.rack_id or None
    return ClassicSubscription(frozenset(message.topics), rack, owned)


def read_assignment(data: bytes, topics: GroupTopicView) -> ClassicAssignment:
    """Return a decoded assignment; MessageDecodeError if it is malformed.

    Topics and partitions that do not exist are left out. A member without an
    assignment yet has no data.
    """
    if not data:
        return ClassicAssignment({}, has_user_data=False)
    cls = ConsumerProtocolAssignment
    version = min(version_of(data), cls.versions.last)
    message, _ = decode_from(cls, version, data, _VERSION.size)
    partitions = unite(
        (topic.topic_id, [number for number in each.partitions if 0 <= number < len(topic.racks)])
        for each in message.assigned_partitions
        if (topic := topics.named(each.topic)) is not None
    )
    return ClassicAssignment(partitions, bool(message.user_data))


def encode_assignment(partitions: PartitionSets, topics: GroupTopicView, metadata: bytes) -> bytes:
    """Return an assignment in the version of the member's subscription ``metadata``.

    It has version 0 if the metadata is malformed, because only the metadata of a member's first
    protocol is checked when the member joins.
    """
    cls = ConsumerProtocolAssignment
    try:
        version = min(version_of(metadata), cls.versions.last)
    except MessageDecodeError:
        version = 0
    message = cls(
        assigned_partitions=[
            cls.TopicPartition(topic=topic.name, partitions=sorted(partitions[topic_id]))
            for topic_id in partitions
            if (topic := topics.identified(topic_id)) is not None
        ]
    )
    return _VERSION.pack(version) + encode(message, version)
