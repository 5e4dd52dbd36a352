"""SyncGroup (14), versions 0-5.

Version 3 adds static members (KIP-345), 5 the protocol, which is checked (KIP-559).
"""

from __future__ import annotations

from kohort.protocol.messages import SyncGroupRequest, SyncGroupResponse
from kohort.testing.apis._registry import Context, serves


@serves(SyncGroupRequest, (0, 5))
async def sync_group(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    return await ctx.broker.coordinator.sync(request)
