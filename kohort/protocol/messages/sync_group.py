"""SyncGroup, API key 14: send the leader's assignment, and get that of the member.

Version 3 adds static members (KIP-345). Version 5 adds the protocol for a check (KIP-559).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bytes, Int16, Int32, String


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    """Response to :class:`SyncGroupRequest`."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignment: Bytes = field(default=b"")


class SyncGroupRequest(Request[SyncGroupResponse], api_key=14, versions="0-5", flexible="4+"):
    """Request with the leader's assignment. The response has that of the member."""

    class SyncGroupRequestAssignment(Struct):
        member_id: String = field(default="")
        assignment: Bytes = field(default=b"")

    group_id: String = field(default="")
    generation_id: Int32 = field(default=0)
    member_id: String = field(default="")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = field(default_factory=list)
