"""SyncGroup (API 14), versions 0-5.

Version 3 adds static members (KIP-345). Version 5 adds the protocol, which is required and checked
(KIP-559).
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import SyncGroupRequest, SyncGroupResponse


@serves(SyncGroupRequest, (0, 5))
async def sync_group(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if ctx.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await ctx.broker.coordinator.sync(request)
