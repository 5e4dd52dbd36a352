"""Messages between consumers of a group, which JoinGroup and SyncGroup carry.

An int16 version comes before each message. Newer versions only append fields, so a reader takes
the fields that it knows and ignores the rest.
"""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import Bytes, Int32, String


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """Subscription of a member. Version 1 adds owned partitions, 2 the generation, 3 the rack."""

    class TopicPartition(Struct):
        topic: String = field("1+", default="")
        partitions: list[Int32] = field("1+", default_factory=list)

    topics: list[String] = field(default_factory=list)
    user_data: Bytes | None = field(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = field(
        "1+", default_factory=list, ignorable=True
    )
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """Assignment of a member."""

    class TopicPartition(Struct):
        topic: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = field(
        default_factory=list
    )
    user_data: Bytes | None = field(nullable="0+", default=None)
