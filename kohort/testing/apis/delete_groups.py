"""DeleteGroups (42), versions 0-2. Only groups without members can be deleted."""

from __future__ import annotations

from kohort.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.testing.apis._registry import Context, serves


@serves(DeleteGroupsRequest, (0, 2))
async def delete_groups(ctx: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(
                group_id=group_id, error_code=ctx.broker.coordinator.delete_group(group_id)
            )
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )
