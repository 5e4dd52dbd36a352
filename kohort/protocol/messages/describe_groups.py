"""DescribeGroups, API key 15: state and members of classic groups.

Version 6 returns GROUP_ID_NOT_FOUND for an unknown group (KIP-1043).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Bytes, Int16, Int32, String


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    """Response to :class:`DescribeGroupsRequest`."""

    class DescribedGroup(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field("6+", nullable="6+", default=None)
        group_id: String = field(default="")
        group_state: String = field(default="")
        protocol_type: String = field(default="")
        protocol_data: String = field(default="")
        members: list[DescribeGroupsResponse.DescribedGroupMember] = field(default_factory=list)
        authorized_operations: Int32 = field("3+", default=-2147483648)

    class DescribedGroupMember(Struct):
        member_id: String = field(default="")
        group_instance_id: String | None = field("4+", nullable="4+", default=None, ignorable=True)
        client_id: String = field(default="")
        client_host: String = field(default="")
        member_metadata: Bytes = field(default=b"")
        member_assignment: Bytes = field(default=b"")

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribeGroupsResponse.DescribedGroup] = field(default_factory=list)


class DescribeGroupsRequest(
    Request[DescribeGroupsResponse], api_key=15, versions="0-6", flexible="5+"
):
    """State and members of classic groups."""

    groups: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field("3+", default=False)
