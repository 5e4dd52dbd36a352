"""DeleteGroups (API 42), versions 0-3. Only groups without members can be deleted.

Version 3 adds a message to the error (KIP-1331). Kafka fills it for groups of other kinds only.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse


@serves(DeleteGroupsRequest, (0, 3))
async def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=group_id, error_code=_delete(ctx, group_id)
            )
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


def _delete(ctx: Context, group_id: str) -> ErrorCode:
    if not ctx.allows(AclOperation.DELETE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ctx.broker.coordinator.delete_group(group_id)
