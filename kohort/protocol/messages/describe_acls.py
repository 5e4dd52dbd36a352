"""DescribeAcls, API key 29: the ACLs that match a filter."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class DescribeAclsResponse(Response, api_key=29, versions="1-3", flexible="2+"):
    """Response to :class:`DescribeAclsRequest`."""

    class DescribeAclsResource(Struct):
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        pattern_type: Int8 = field(default=3)
        acls: list[DescribeAclsResponse.AclDescription] = field(default_factory=list)

    class AclDescription(Struct):
        principal: String = field(default="")
        host: String = field(default="")
        operation: Int8 = field(default=0)
        permission_type: Int8 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    resources: list[DescribeAclsResponse.DescribeAclsResource] = field(default_factory=list)


class DescribeAclsRequest(Request[DescribeAclsResponse], api_key=29, versions="1-3", flexible="2+"):
    """A filter for ACLs. Null matches any name, principal or host."""

    resource_type_filter: Int8 = field(default=0)
    resource_name_filter: String | None = field(nullable="0+", default="")
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None = field(nullable="0+", default="")
    host_filter: String | None = field(nullable="0+", default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)
