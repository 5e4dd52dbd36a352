"""Subscriptions of a group's members, read from the metadata of consumers."""

from __future__ import annotations

import struct

from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.errors import MessageDecodeError
from kohort.protocol import decode_from
from kohort.protocol.messages import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")


def is_subscribed(group: AnyGroup, topic: str) -> bool:
    """True if a consumer is subscribed to the topic, or its metadata cannot be decoded."""
    if isinstance(group, ConsumerGroup):
        return group.is_subscribed(topic)
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    subscriptions = [_topics(m.metadata(group.protocol or "")) for m in group.members.values()]
    return any(topics is None or topic in topics for topics in subscriptions)


def _topics(metadata: bytes) -> set[str] | None:
    cls = ConsumerProtocolSubscription
    try:
        (version,) = _VERSION.unpack_from(metadata)
        if version < 0:
            return None
        # A newer version appends fields to those of the newest known version.
        message, _ = decode_from(cls, min(version, cls.versions.last), metadata, _VERSION.size)
    except (MessageDecodeError, struct.error):
        return None
    return set(message.topics)
