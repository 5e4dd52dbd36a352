"""ShareGroupHeartbeat (API 76), version 1: members of share groups join, stay and leave."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@serves(ShareGroupHeartbeatRequest, (1, 1))
async def share_group_heartbeat(
    ctx: Context, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    for name in request.subscribed_topic_names or ():
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return ShareGroupHeartbeatResponse(
                error_code=error, error_message=refusal_message(error)
            )
    return ctx.broker.coordinator.share_heartbeat(request, ctx.caller)
