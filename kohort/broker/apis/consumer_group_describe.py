"""ConsumerGroupDescribe (API 69), versions 0-1. Every group here is a classic one.

Clients describe all groups with this API first, then the refused ones with DescribeGroups.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

_Described = ConsumerGroupDescribeResponse.DescribedGroup


@serves(ConsumerGroupDescribeRequest, (0, 1))
async def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_describe(ctx, group_id) for group_id in request.group_ids]
    )


def _describe(ctx: Context, group_id: str) -> _Described:
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return _Described(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _Described(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = ctx.broker.coordinator
    error = coordinator.check(group_id)
    if error is not ErrorCode.NONE:
        return _Described(group_id=group_id, error_code=error)
    what = "is not a consumer group" if group_id in coordinator.groups else "not found"
    return _Described(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )
