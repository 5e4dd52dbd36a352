"""LeaveGroup (API 13), versions 0-5.

Up to version 2 one member leaves, and the response has its error. Since version 3 several members
leave, each with an error (KIP-345). The response's error then stays 0.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import LeaveGroupRequest, LeaveGroupResponse


@serves(LeaveGroupRequest, (0, 5))
async def leave_group(ctx: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    members = request.members
    if ctx.version < 3:
        members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    error, left = ctx.broker.coordinator.leave(request.group_id, members)
    if ctx.version < 3:
        if error is ErrorCode.NONE:
            return LeaveGroupResponse(error_code=left[0].error_code)
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(error_code=error, members=left)
