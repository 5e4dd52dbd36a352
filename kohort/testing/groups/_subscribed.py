"""What the members of a classic group are subscribed to, where they say it as consumers do."""

from __future__ import annotations

import struct

from kohort.errors import MessageDecodeError
from kohort.protocol import decode_from
from kohort.protocol.messages import ConsumerProtocolSubscription
from kohort.testing.groups._group import ClassicGroup

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")


def subscribed_topics(group: ClassicGroup) -> set[str]:
    """The topics of all subscriptions that can be read."""
    topics: set[str] = set()
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member in group.members.values():
            topics |= _topics(member.metadata(group.protocol or ""))
    return topics


def _topics(metadata: bytes) -> set[str]:
    cls = ConsumerProtocolSubscription
    try:
        (version,) = _VERSION.unpack_from(metadata)
        if version < 0:
            return set()
        # A newer version adds to the end of what the newest known one has.
        message, _ = decode_from(cls, min(version, cls.versions.last), metadata, _VERSION.size)
    except (MessageDecodeError, struct.error):
        return set()
    return set(message.topics)
