"""JoinGroup, API key 11: join a classic group, or rejoin it for a rebalance.

- Version 4 adds the round trip for the member id (KIP-394).
- Version 5 adds static members (KIP-345).
- Version 8 adds a reason (KIP-800).
- Version 9 adds skip_assignment (KIP-814).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Bytes, Int16, Int32, String


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    """Response to :class:`JoinGroupRequest`."""

    class JoinGroupResponseMember(Struct):
        member_id: String = field(default="")
        group_instance_id: String | None = field("5+", nullable="5+", default=None, ignorable=True)
        metadata: Bytes = field(default=b"")

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+", default="")
    leader: String = field(default="")
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field(default="")
    members: list[JoinGroupResponse.JoinGroupResponseMember] = field(default_factory=list)


class JoinGroupRequest(Request[JoinGroupResponse], api_key=11, versions="0-9", flexible="6+"):
    """Request to join a classic group, or to rejoin it for a rebalance."""

    class JoinGroupRequestProtocol(Struct):
        name: String = field(default="")
        metadata: Bytes = field(default=b"")

    group_id: String = field(default="")
    session_timeout_ms: Int32 = field(default=0)
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field(default="")
    group_instance_id: String | None = field("5+", nullable="5+", default=None)
    protocol_type: String = field(default="")
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = field(default_factory=list)
    reason: String | None = field("8+", nullable="8+", default=None, ignorable=True)
