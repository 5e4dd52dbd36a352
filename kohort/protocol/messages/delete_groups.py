"""DeleteGroups, API key 42: delete empty groups."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class DeleteGroupsResponse(Response, api_key=42, versions="0-3", flexible="2+"):
    """Response to :class:`DeleteGroupsRequest`."""

    class DeletableGroupResult(Struct):
        group_id: String = field(default="")
        error_code: Int16 = field(default=0)
        error_message: String | None = field("3+", nullable="3+", default=None, ignorable=True)

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeleteGroupsResponse.DeletableGroupResult] = field(default_factory=list)


class DeleteGroupsRequest(Request[DeleteGroupsResponse], api_key=42, versions="0-3", flexible="2+"):
    """Request to delete empty groups."""

    groups_names: list[String] = field(default_factory=list)
