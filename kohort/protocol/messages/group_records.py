"""Records of ``__consumer_offsets`` for classic groups, record type 2."""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import Bytes, Int32, Int64, String


class GroupMetadataKey(Message, api_key=2, versions="0"):
    """The group."""

    group: String = field(default="")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    """Generation, leader and members with their subscriptions and assignments."""

    class MemberMetadata(Struct):
        member_id: String = field(default="")
        group_instance_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)
        client_id: String = field(default="")
        client_host: String = field(default="")
        rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
        session_timeout: Int32 = field(default=0)
        subscription: Bytes = field(default=b"")
        assignment: Bytes = field(default=b"")

    protocol_type: String = field(default="")
    generation: Int32 = field(default=0)
    protocol: String | None = field(nullable="0+", default="")
    leader: String | None = field(nullable="0+", default="")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[GroupMetadataValue.MemberMetadata] = field(default_factory=list)
