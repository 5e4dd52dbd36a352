"""ListGroups, API key 16: the groups that a broker coordinates.

Version 4 filters by state (KIP-518). Version 5 filters by type (KIP-848).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    """Response to :class:`ListGroupsRequest`."""

    class ListedGroup(Struct):
        group_id: String = field(default="")
        protocol_type: String = field(default="")
        group_state: String = field("4+", default="", ignorable=True)
        group_type: String = field("5+", default="", ignorable=True)

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: list[ListGroupsResponse.ListedGroup] = field(default_factory=list)


class ListGroupsRequest(Request[ListGroupsResponse], api_key=16, versions="0-5", flexible="3+"):
    """The groups that a broker coordinates."""

    states_filter: list[String] = field("4+", default_factory=list)
    types_filter: list[String] = field("5+", default_factory=list)
