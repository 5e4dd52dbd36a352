"""DeleteAcls, API key 31: remove the ACLs that match filters."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class DeleteAclsResponse(Response, api_key=31, versions="1-3", flexible="2+"):
    """Response to :class:`DeleteAclsRequest`, one result for each filter in their order."""

    class DeleteAclsFilterResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = field(default_factory=list)

    class DeleteAclsMatchingAcl(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        pattern_type: Int8 = field(default=3)
        principal: String = field(default="")
        host: String = field(default="")
        operation: Int8 = field(default=0)
        permission_type: Int8 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = field(default_factory=list)


class DeleteAclsRequest(Request[DeleteAclsResponse], api_key=31, versions="1-3", flexible="2+"):
    """Filters for ACLs. Null matches any name, principal or host."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: Int8 = field(default=0)
        resource_name_filter: String | None = field(nullable="0+", default="")
        pattern_type_filter: Int8 = field(default=3)
        principal_filter: String | None = field(nullable="0+", default="")
        host_filter: String | None = field(nullable="0+", default="")
        operation: Int8 = field(default=0)
        permission_type: Int8 = field(default=0)

    filters: list[DeleteAclsRequest.DeleteAclsFilter] = field(default_factory=list)
