"""LeaveGroup, API key 13: leave a classic group, or remove members from it.

Version 3 takes several members (KIP-345). Version 5 takes a reason (KIP-800).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    """Response to :class:`LeaveGroupRequest`."""

    class MemberResponse(Struct):
        member_id: String = field("3+", default="")
        group_instance_id: String | None = field("3+", nullable="3+", default="")
        error_code: Int16 = field("3+", default=0)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[LeaveGroupResponse.MemberResponse] = field("3+", default_factory=list)


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions="0-5", flexible="4+"):
    """Request to leave a classic group, or remove members from it."""

    class MemberIdentity(Struct):
        member_id: String = field("3+", default="")
        group_instance_id: String | None = field("3+", nullable="3+", default=None)
        reason: String | None = field("5+", nullable="5+", default=None, ignorable=True)

    group_id: String = field(default="")
    member_id: String = field("0-2", default="")
    members: list[LeaveGroupRequest.MemberIdentity] = field("3+", default_factory=list)
