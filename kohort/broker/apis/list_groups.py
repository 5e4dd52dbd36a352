"""ListGroups (API 16), versions 0-5. Version 4 adds states and a filter by them, 5 group types."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.protocol.messages import ListGroupsRequest, ListGroupsResponse


@serves(ListGroupsRequest, (0, 5))
async def list_groups(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    coordinator = ctx.broker.coordinator
    sees_all = ctx.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.type_name,
            )
            for group in (*coordinator.groups.values(), *coordinator.share_groups.values())
            if (not states or group.state.value.lower() in states)
            and (not types or group.type_name in types)
            and (sees_all or ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    )
