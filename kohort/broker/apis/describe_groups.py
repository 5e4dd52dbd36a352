"""DescribeGroups (API 15), versions 0-6.

Version 3 adds authorized operations, version 4 instance ids. An unknown group has the state "Dead",
and since version 6 the error GROUP_ID_NOT_FOUND. Only a stable group shows its protocol and the
members' metadata.
"""

from __future__ import annotations

from kohort.broker.apis._group_descriptions import describe_all
from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import NOT_REQUESTED
from kohort.broker.groups import ConsumerGroup, GroupState
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse

_Described = DescribeGroupsResponse.DescribedGroup


@serves(DescribeGroupsRequest, (0, 6))
async def describe_groups(ctx: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = describe_all(
        ctx,
        request.groups,
        _Described,
        _describe,
        with_operations=request.include_authorized_operations,
        takes_empty_id=True,
    )
    return DescribeGroupsResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> _Described:
    group = ctx.broker.coordinator.groups.get(group_id)
    if group is None or isinstance(group, ConsumerGroup):
        problem = "not found" if group is None else "is not a classic group"
        dead = _Described(
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            authorized_operations=NOT_REQUESTED,
        )
        if ctx.version >= 6:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = f"Group {group_id} {problem}."
        return dead
    stable = group.state is GroupState.STABLE
    protocol = (group.protocol or "") if stable else ""
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
