"""Heartbeat (API 12), versions 0-4. Version 3 adds static members (KIP-345)."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.protocol.messages import HeartbeatRequest, HeartbeatResponse


@serves(HeartbeatRequest, (0, 4))
async def heartbeat(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=ctx.broker.coordinator.heartbeat(request))
