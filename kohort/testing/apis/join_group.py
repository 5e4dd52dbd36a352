"""JoinGroup (11), versions 0-9.

Version 1 adds the rebalance timeout (before, the session timeout is both), 4 the round trip for a
member id (KIP-394), 5 static members (KIP-345), 9 skip_assignment (KIP-814). Before version 7 the
name of no protocol is "".
"""

from __future__ import annotations

from kohort.protocol.messages import JoinGroupRequest, JoinGroupResponse
from kohort.testing.apis._registry import Context, serves


@serves(JoinGroupRequest, (0, 9))
async def join_group(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    response = await ctx.broker.coordinator.join(request, ctx.caller)
    if ctx.version < 7 and response.protocol_name is None:
        response.protocol_name = ""
    return response
