"""JoinGroup (API 11), versions 0-9.

- Version 1 adds the rebalance timeout. Before it the session timeout is used for both.
- Version 4 adds the round trip for a member id (KIP-394).
- Version 5 adds static members (KIP-345).
- Version 7 has null instead of "" as the name of no protocol.
- Version 9 adds skip_assignment (KIP-814).
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.protocol.messages import JoinGroupRequest, JoinGroupResponse


@serves(JoinGroupRequest, (0, 9))
async def join_group(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    response = await ctx.broker.coordinator.join(request, ctx.caller)
    if ctx.version < 7 and response.protocol_name is None:
        response.protocol_name = ""
    return response
