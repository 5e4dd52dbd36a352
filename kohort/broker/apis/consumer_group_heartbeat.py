"""ConsumerGroupHeartbeat (API 68), versions 0-1.

Version 1 adds subscriptions by pattern, and requires that the client makes its member id.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@serves(ConsumerGroupHeartbeatRequest, (0, 1))
async def consumer_group_heartbeat(
    ctx: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    for name in request.subscribed_topic_names or ():
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return ctx.broker.coordinator.consumer_heartbeat(request, ctx.caller)
