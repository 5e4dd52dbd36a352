"""CreateAcls, API key 30: create ACLs."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class CreateAclsResponse(Response, api_key=30, versions="1-3", flexible="2+"):
    """Response to :class:`CreateAclsRequest`, one result for each ACL in their order."""

    class AclCreationResult(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreateAclsResponse.AclCreationResult] = field(default_factory=list)


class CreateAclsRequest(Request[CreateAclsResponse], api_key=30, versions="1-3", flexible="2+"):
    """ACLs to create."""

    class AclCreation(Struct):
        resource_type: Int8 = field(default=0)
        resource_name: String = field(default="")
        resource_pattern_type: Int8 = field(default=3)
        principal: String = field(default="")
        host: String = field(default="")
        operation: Int8 = field(default=0)
        permission_type: Int8 = field(default=0)

    creations: list[CreateAclsRequest.AclCreation] = field(default_factory=list)
